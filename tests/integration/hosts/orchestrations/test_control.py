"""Orchestrations on hosts start others, suspend and terminate themselves, and run atomic functions (ORC-40, 52, 53)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from postroom.message import Message
from postroom.messagebox.instances import InstanceState, get_instance
from postroom.messagebox.maintenance.check import check
from postroom.operations.orchestrations import states as orchestration_states
from postroom.operations.orchestrations.story import read_story
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.changes import resume
from tests.support.orchestrations import Clock, Key, Kind, apply_orchestrations, has_ended, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

START = """
from postroom.errors import RoutingFailure

@app.orchestration(host="Default")
async def ship(order: Message) -> None:
    await orchestrations.send(Message.of(b"ship " + order.context[Key].encode()), to="Out")

@app.orchestration(activate=Kind == "order", host="Default")
async def sell(order: Message) -> None:
    try:
        await orchestrations.start(ship, order)
        await orchestrations.send(Message.of(b"sold"), to="Out")
    except RoutingFailure:
        await orchestrations.send(Message.of(b"not shipped"), to="Out")
"""


def test_an_orchestration_starts_another_one(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, START)
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"ship k", b"sold"], what="both orchestrations")
    wait_until(lambda: has_ended(box), what="the end of the instances")
    assert check(box.connection) == []


def test_a_start_waits_while_the_orchestration_is_stopped_and_fails_while_it_is_not_enlisted(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, START)
    start_host(recorder)
    orchestration_states.stop(box.connection, "ship")
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"sold"], what="the end of the first")
    assert box.suspended() == [("PORT_STOPPED", True)]
    orchestration_states.start(box.connection, "ship")
    wait_until(lambda: sent(recorder) == [b"ship k", b"sold"], what="the one that was started")
    orchestration_states.unenlist(box.connection, "ship")
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"not shipped", b"ship k", b"sold"], what="the exception")


def test_an_instance_that_has_suspended_itself_continues_on_another_host_instance(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-02: a reply that comes before the receive waits for it."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
        async def review(order: Message) -> None:
            replies = Replies.of(order)
            await orchestrations.send(Message.of(b"before"), to="Out")
            await orchestrations.suspend("Look at the price.")
            await orchestrations.send(Message.of(b"after " + (await replies.receive()).data), to="Out")
        """,
    )
    first = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"before"], what="the message before")
    wait_until(lambda: box.count("suspended orchestrations") == 1, what="suspended")
    instance = get_instance(box.connection, box.orchestration_instances()[0].instance_id)
    assert (instance.state, instance.error_code) == (InstanceState.SUSPENDED, "SUSPENDED_ITSELF")
    assert instance.error_description == "Look at the price."
    publish(box, "reply", "reply")
    first.stop()
    start_host(recorder)
    story = read_story(box.connection, instance.instance_id)
    assert story is not None
    assert [line.what for line in story.story or ()][-1] == "suspended itself"
    resume(box.connection, instance.instance_id)
    wait_until(lambda: sent(recorder) == [b"after reply", b"before"], what="the message after")
    wait_until(lambda: has_ended(box), what="the end of the instance")
    assert check(box.connection) == []


def test_an_instance_does_not_wait_for_a_step_that_it_has_cancelled(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
        async def cancel(order: Message) -> None:
            replies = Replies.of(order)
            shipping = asyncio.create_task(orchestrations.step(str, "ship"))
            await asyncio.sleep(0)
            shipping.cancel()
            await replies.receive()
        """,
    )
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("waiting orchestrations") == 1)
    story = read_story(box.connection, box.orchestration_instances()[0].instance_id)
    assert story is not None
    assert [line.what for line in story.story or () if line.kind == "step"] == [
        "started step str",
        "cancelled step str",
    ]
    assert [wait.kind for wait in story.waits_for] == ["message"]


def test_an_instance_that_terminates_itself_leaves_its_messages(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-53: nobody waits for the reply any more. The second message of the convoy activates the next instance."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", convoy=[Key], correlations=[Replies], host="Default")
        async def collect(first: Message) -> None:
            Replies.of(first)
            await orchestrations.receive()
            await orchestrations.send(Message.of(b"sent"), to="Out")
            await orchestrations.terminate("It is not needed.")
        """,
    )
    start_host(recorder)
    publish(box, "order", "1")
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="the instance waits")
    publish(box, "reply", "")
    orders = [Message.of(b"", promoted={Kind: "order", Key: "k"}) for _ in range(2)]
    box.agent(warm=False).publish(orders)
    wait_until(lambda: box.suspended() == [("0xC0C01B4C", False)], what="the reply suspended")
    wait_until(lambda: sent(recorder) == [b"sent"], what="the message that was sent before")
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="the next instance waits")
    assert check(box.connection) == []
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"sent", b"sent"], what="the end of the next instance")
    wait_until(lambda: has_ended(box), what="the end of the instances")
    assert check(box.connection) == []


def test_an_atomic_function_is_repeated_and_sends_everything_or_nothing(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-40, 41: the first function fails, and the second one succeeds after two seconds."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        async def fail() -> None:
            await orchestrations.send(Message.of(b"not sent"), to="Out")
            raise ValueError

        async def transfer(attempts: list[int]) -> None:
            await orchestrations.send(Message.of(b"take"), to="Out")
            attempts.append(1)
            if len(attempts) == 1:
                raise orchestrations.RetryTransaction
            await orchestrations.send(Message.of(b"give"), to="Out")

        @app.orchestration(activate=Kind == "order", host="Default")
        async def book(order: Message) -> None:
            with suppress(ValueError):
                await orchestrations.atomic(fail)
            await orchestrations.atomic(transfer, [])
        """,
    )
    clock = Clock()
    start_host(recorder, clock=clock)
    publish(box, "order", "")
    wait_until(lambda: box.count("orchestrations with a timer") == 1, what="the wait for the repetition")
    assert box.count("messages") == 1, "only the order"
    clock.time += timedelta(seconds=2)
    wait_until(lambda: sent(recorder) == [b"give", b"take"], what="both messages")
    wait_until(lambda: has_ended(box), what="the end of the instance")
    assert check(box.connection) == []
