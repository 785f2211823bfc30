"""Timers of orchestrations: a message that came before a timer was due is received before the timer fires."""

from __future__ import annotations

import uuid
from datetime import datetime, timedelta
from pathlib import Path

from postroom.messagebox.orchestration_instances import HostOrchestrations
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.orchestrations import Clock, apply_orchestrations, publish
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

WAIT = """
@app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
async def wait(order: Message) -> None:
    replies = Replies.of(order)
    try:
        async with asyncio.timeout(60):
            while True:
                await replies.receive()
    except TimeoutError:
        await orchestrations.send(Message.of(b"too late"), to="Out")
"""


def test_a_message_that_comes_while_a_step_runs_is_received_before_a_timer_that_is_due_after_it(
    box: Box, tmp_path: Path, start_host: StartHost
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        f"""
        from pathlib import Path
        import time

        def work() -> None:
            Path({str(tmp_path / "started")!r}).touch()
            while not Path({str(tmp_path / "go")!r}).exists():
                time.sleep(0.01)

        @app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
        async def run(order: Message) -> None:
            replies = Replies.of(order)

            async def listen() -> str:
                try:
                    async with asyncio.timeout(60):
                        return (await replies.receive()).data.decode()
                except TimeoutError:
                    return "too late"

            result, _ = await asyncio.gather(listen(), orchestrations.step(work))
            await orchestrations.send(Message.of(result.encode()), to="Out")
        """,
    )
    recorder, clock = RecordingAdapter(), Clock()
    start_host(recorder, clock=clock)
    publish(box, "order", "")
    wait_until((tmp_path / "started").exists, what="the step")
    publish(box, "reply", "in time")
    clock.time += timedelta(seconds=100)
    (tmp_path / "go").touch()
    wait_until(lambda: [one.body for one in recorder.sent] == [b"in time"], what="the reply")


def test_no_timer_fires_while_a_message_that_came_before_it_is_in_the_queue(
    box: Box, tmp_path: Path, start_host: StartHost
) -> None:
    """A claim takes a limited number of messages from the queue."""
    apply_orchestrations(box, tmp_path, WAIT)
    clock = Clock()
    host = start_host(RecordingAdapter(), clock=clock)
    for key in "ab":
        publish(box, "order", "", key=key)
    wait_until(lambda: box.count("orchestrations with a timer") == 2)
    host.stop()
    limit = 2
    publish(box, "reply", "1", key="a")
    publish(box, "reply", *["other"] * 10 * limit, key="b")
    publish(box, "reply", "2", key="a")
    procedures = HostOrchestrations("Default")
    services = [box.orchestration_ids()[0]]

    def claim() -> dict[int, datetime | None]:
        """Claim both instances. Return the time until which their timers may fire, by the number of their messages."""
        claim_id = uuid.uuid4()
        claimed = procedures.claim(
            box.connection, claim_id=claim_id, host_instance=0, limit=limit, services=services, now=now
        )
        found = {
            sum(message.instance_id == one.instance_id for message in box.orchestration_messages()): one.timers_until
            for one in claimed
        }
        procedures.release(box.connection, claim_id)
        return found

    now = clock.time + timedelta(seconds=100)
    assert claim() == {2: None, 10 * limit: None}
    assert claim() == {3: now, 10 * limit + 1: now}
