"""Under overload publishing stops, nothing is lost, and everything continues when the load is lower (ACC-81)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import postroom
from postroom import Client, Throttled, Throttling
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.operations.throttling import ThrottlingListing, list_throttling
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box, Region
from tests.support.host_settings import set_thresholds
from tests.support.recording_adapter import BlockedSend, RecordingAdapter
from tests.support.waiting import PATIENCE, wait_until

PROGRAMS = 3


def publish(client: Client, bodies: Sequence[str]) -> bool:
    """Publish messages with one key for all. Return False if the program is throttled."""
    messages = [postroom.Message.of(body.encode(), promoted={Region: "EU"}) for body in bodies]
    try:
        client.publish_many(messages, key=bodies[0])
    except Throttled:
        return False
    return True


def wait_for_deliveries(recorder: RecordingAdapter, count: int) -> None:
    wait_until(lambda: len(recorder.sent) == count, what="all messages delivered")


def get_publishing(box: Box) -> ThrottlingListing:
    return next(one for one in list_throttling(box.connection) if one.direction == "publishing")


def test_publishing_stops_while_the_spool_is_full_and_continues_after_the_cleanup(
    box: Box, start_host: StartHost
) -> None:
    """ACC-81: the jobs are stopped, so delivered messages stay in the spool."""
    for name in ("First", "Second"):
        box.add_port(name, "exists(Region)")
    thresholds = Throttling(messages=10_000, spool_multiplier=0.02, longest_delay=60)
    set_thresholds(box.connection, box.host().host_id, thresholds)
    assert get_publishing(box).state == 0
    recorder = RecordingAdapter()
    start_host(recorder)
    published: list[str] = []
    with postroom.connect(box.url, throttle_wait=0) as client:
        while publish(client, batch := [str(uuid.uuid4()) for _ in range(10)]):
            published += batch
            wait_for_deliveries(recorder, 2 * len(published))
        listed = get_publishing(box)
        assert (listed.state, listed.description) == (6, "database size")
        assert listed.delay > 0
        assert "in the spool; the threshold is 200" in listed.reason
        wait_until(lambda: run_all_jobs_once(box.connection) and get_publishing(box).state == 0, what="an empty spool")
        wait_until(lambda: publish(client, batch), what="a publish after the cleanup")
        published += batch
    wait_for_deliveries(recorder, 2 * len(published))
    assert sorted(recorder.bodies) == sorted(body.encode() for body in published * 2)


def test_programs_that_publish_faster_than_the_receiver_works_lose_nothing(box: Box, start_host: StartHost) -> None:
    box.add_port("Slow", "exists(Region)")
    thresholds = Throttling(messages=100, spool_multiplier=0, longest_delay=60, in_process=5)
    set_thresholds(box.connection, box.host().host_id, thresholds)
    assert get_publishing(box).state == 0
    blocked = BlockedSend()
    recorder = RecordingAdapter(blocked)
    start_host(recorder)
    all_throttled = threading.Barrier(PROGRAMS + 1, timeout=PATIENCE)

    def run_program(number: int) -> list[str]:
        published: list[str] = []
        with postroom.connect(box.url, throttle_wait=0) as client:
            while publish(client, batch := [f"{number} {len(published) + row}" for row in range(5)]):
                published += batch
            all_throttled.wait()
            wait_until(lambda: publish(client, batch), what="a publish after the overload")
        return published + batch

    with ThreadPoolExecutor(PROGRAMS) as programs:
        running = [programs.submit(run_program, number) for number in range(PROGRAMS)]
        all_throttled.wait()
        assert get_publishing(box).state == 6
        blocked.released.set()
        wait_until(lambda: box.count("queued") == 0, what="an empty queue")

        def have_all_published() -> bool:
            # Sessions report the rows that they have inserted and deleted later. VACUUM counts them at once.
            box.connection.execute("VACUUM work_queue")
            return all(program.done() for program in running)

        wait_until(have_all_published, what="a publish of every program after the overload")
        published = [body for program in running for body in program.result()]
    wait_until(lambda: box.count("queued") == 0, what="an empty queue")
    assert len(published) > thresholds.messages
    assert sorted(recorder.bodies) == sorted(body.encode() for body in published)
