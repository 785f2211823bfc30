"""Several instances of one host share its queue. No message is processed twice (DEQ-02, 05, 06)."""

from __future__ import annotations

import threading
import uuid
from collections import Counter
from datetime import timedelta

from postroom.adapters import Attempt
from postroom.hosts import HostSettings
from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import JobSettings, build_jobs, run_all_jobs_once
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box, Region
from tests.support.recording_adapter import BlockedSend, RecordingAdapter
from tests.support.waiting import PATIENCE, wait_until


def orders(count: int) -> list[Message]:
    return [Message.of(str(number).encode(), promoted={Region: "EU"}) for number in range(count)]


def test_two_instances_share_a_thousand_messages(box: Box, start_host: StartHost) -> None:
    """HST-06."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    in_progress: set[uuid.UUID] = set()
    duplicates: list[uuid.UUID] = []
    lock, both = threading.Lock(), threading.Event()

    def handle(message: Message, attempt: Attempt) -> None:
        with lock:
            if attempt.instance_id in in_progress:
                duplicates.append(attempt.instance_id)
            in_progress.add(attempt.instance_id)
        if all(recorder.attempts for recorder in recorders):
            both.set()
        assert both.wait(PATIENCE), "one instance gets no messages"
        with lock:
            in_progress.discard(attempt.instance_id)

    recorders = [RecordingAdapter(handle), RecordingAdapter(handle)]
    instances = [start_host(recorder) for recorder in recorders]
    agent = box.agent()
    for _ in range(10):
        agent.publish(orders(100))
    wait_until(lambda: sum(instance.counts["completed"] for instance in instances) == 1000)
    handled = Counter(message.attempt.instance_id for recorder in recorders for message in recorder.sent)
    assert len(handled) == 1000
    assert set(handled.values()) == {1}
    assert duplicates == []
    assert box.count("queued") == 0
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []


def test_all_threads_of_the_service_class_work_at_the_same_time(box: Box, start_host: StartHost) -> None:
    """DEQ-01."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.set_dequeuing(ServiceClass.MESSAGING_IN_PROCESS, threads=3)
    blocked = BlockedSend()
    recorder = RecordingAdapter(blocked)
    instance = start_host(recorder)
    box.agent().publish(orders(10))
    wait_until(lambda: len(recorder.attempts) == 3)
    blocked.released.set()
    wait_until(lambda: instance.counts["completed"] == 10)


def test_the_number_of_claimed_messages_is_limited_by_the_memory_queue(box: Box, start_host: StartHost) -> None:
    """DEQ-07."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish(orders(100))
    blocked = BlockedSend()
    recorder = RecordingAdapter(blocked)
    instance = start_host(recorder, settings=HostSettings(runs_jobs=False, memory_queue=10))
    wait_until(lambda: len(recorder.attempts) == 5)
    wait_until(lambda: box.count("claimed") >= 10)
    assert box.count("claimed") <= 10 + 5
    blocked.released.set()
    wait_until(lambda: instance.counts["completed"] == 100)


def test_a_wake_up_ends_the_polling_interval(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.set_dequeuing(interval=timedelta(hours=1))
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    agent = box.agent()
    for number in range(1, 6):
        agent.publish(orders(1))
        wait_until(lambda expected=number: instance.counts["completed"] == expected)  # type: ignore[misc]


def test_a_burst_after_a_wake_up_is_claimed_at_once(box: Box, start_host: StartHost) -> None:
    """Publishers wake a host once for a burst. The host polls until the burst is over."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.set_dequeuing(interval=timedelta(hours=1))
    instance = start_host(RecordingAdapter())
    agent = box.agent()
    for number in range(1, 21):
        for message in orders(5):
            agent.publish([message])
        wait_until(lambda expected=5 * number: instance.counts["completed"] == expected)  # type: ignore[misc]


def test_messages_are_found_by_polling_without_a_wake_up(box: Box, start_host: StartHost) -> None:
    """DEQ-01."""
    box.add_port("Europe", "Orders.Region == 'EU'", state="stopped")
    box.agent().publish(orders(1))
    box.set_dequeuing(interval=timedelta(milliseconds=50))
    instance = start_host(RecordingAdapter())
    box.resume_all()
    wait_until(lambda: instance.counts["completed"] == 1)


def test_the_jobs_run_inside_the_hosts(box: Box, start_host: StartHost) -> None:
    """The jobs delete all delivered messages from the spool."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    often = timedelta(milliseconds=50)
    settings = HostSettings(
        memory_queue=100, jobs=JobSettings(ref_counts=often, cleanup=often, dead_processes=often, others=often)
    )
    instances = [start_host(RecordingAdapter(), settings=settings) for _ in range(2)]
    box.agent().publish(orders(100))
    wait_until(lambda: sum(instance.counts["completed"] for instance in instances) == 100)
    wait_until(lambda: box.count("messages") == 0 and box.count("parts") == 0)
    wait_until(lambda: min(run.runs for run in box.job_runs()) >= 2)
    assert [run.error for run in box.job_runs()] == [None] * len(build_jobs())
    assert check(box.connection) == []
