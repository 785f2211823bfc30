"""ORC-57: services that activate each other without end are found, and the message that is too much is suspended."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom import Message
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.operations.instances.advice import get_advice
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.changes import resume
from tests.support.orchestrations import Key, Kind, apply_orchestrations, has_ended, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

HOST = 'app.host("Default", max_hops=5)'
ITSELF = """
@app.orchestration(activate=Kind == "order", host="Default")
async def again(order: Message) -> None:
    await orchestrations.send(order)
"""
PING_PONG = """
@app.orchestration(activate=Kind == "order", host="Default")
async def ping(order: Message) -> None:
    await orchestrations.send(Message.of(b"ball", promoted={Kind: "ball"}))

@app.orchestration(activate=Kind == "ball", host="Default")
async def pong(ball: Message) -> None:
    await orchestrations.send(Message.of(b"ball", promoted={Kind: "order"}))
"""


@pytest.mark.parametrize(
    ("code", "chain"),
    [
        (ITSELF, "again > again > again > again > again > again"),
        (PING_PONG, "ping > pong > ping > pong > ping > pong"),
    ],
)
def test_orchestrations_that_activate_each_other_are_stopped(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, code: str, chain: str
) -> None:
    apply_orchestrations(box, tmp_path, code, host=HOST)
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.suspended() and has_ended(box), what="the end of the loop")
    [instance] = list_instances(box.connection, InstanceQuery())
    assert (instance.error_code, instance.state.value) == ("LOOP", "suspended")
    assert instance.error_description is not None
    assert f"The last of them are: {chain}." in instance.error_description
    assert "was passed on 6 times, and the limit is 5" in instance.error_description
    assert "Correct the filters" in (get_advice(instance) or "")
    resume(box.connection, instance.instance_id)
    wait_until(lambda: "7 times" in read_reason(box), what="one more round")
    assert check(box.connection) == []


def read_reason(box: Box) -> str:
    return "".join(str(one.error_description) for one in list_instances(box.connection, InstanceQuery()))


def test_a_conversation_and_a_convoy_of_any_length_are_no_loops(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """Each of the thousand messages of an instance has one hop."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(host="Default")
        async def check(order: Message) -> None:
            await orchestrations.send(Message.of(order.data), to=orchestrations.reply_port(order))

        @app.orchestration(activate=Kind == "order", convoy=[Key], host="Default")
        async def collect(order: Message) -> None:
            replies = orchestrations.open_port()
            for number in range(1000):
                if number < 20:
                    await orchestrations.start(check, order, reply_to=replies)
                    await replies.receive()
                if number < 999:
                    order = await orchestrations.receive()
            await orchestrations.send(Message.of(b"end"), to="Out")
        """,
        host=HOST,
    )
    messages = [Message.of(b"", promoted={Kind: "order", Key: "k"}) for _ in range(1000)]
    box.agent(warm=False).publish(messages)
    start_host(recorder)
    wait_until(lambda: sent(recorder) == [b"end"], what="the end of the convoy")
    assert box.suspended() == []


def test_a_request_that_is_too_much_is_refused(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """Nobody would answer a suspended request. The instance is suspended, and so are those that wait for it."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", host="Default")
        async def again(order: Message) -> None:
            replies = orchestrations.open_port()
            await orchestrations.send(order, reply_to=replies)
            await replies.receive()
            await orchestrations.send(Message.of(b""), to=orchestrations.reply_port(order))
        """,
        host=HOST,
    )
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("suspended orchestrations") == 6, what="the suspension of all instances")
    errors = [str(one.error_description) for one in box.orchestration_instances()]
    assert sum("The message was passed on 6 times" in error for error in errors) == 1
    assert sum("There is no reply." in error for error in errors) == 5
    assert box.count("queued") == 0
    assert check(box.connection) == []
