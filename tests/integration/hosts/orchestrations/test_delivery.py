"""Orchestrations on hosts wait until send ports have delivered their messages (ACK-06, 07)."""

from __future__ import annotations

from pathlib import Path

from postroom.adapters import Attempt
from postroom.errors import DeliveryFailure
from postroom.message import Message
from postroom.messagebox.maintenance.check import check
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.changes import resume, suspend
from tests.support.orchestrations import apply_orchestrations, publish
from tests.support.recording_adapter import BlockedSend, RecordingAdapter
from tests.support.two_way import make_two_way
from tests.support.waiting import wait_until

DELIVER = """
from postroom import Retry
from postroom.errors import DeliveryFailure

app.send_port("Web", adapters.Null(), host="Default", retry=Retry(count=1, interval=0))
app.send_port("Copy", adapters.Null(), filter=Kind == "result", host="Default")

@app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
async def ship(order: Message) -> None:
    replies = Replies.of(order)
    try:
        await orchestrations.deliver(Message.of(b"result", promoted={Kind: "result"}), to="Web")
        text = "delivered"
    except DeliveryFailure as error:
        text = error.why.splitlines()[0]
    await orchestrations.send(Message.of(text.encode()), to="Out")
    await replies.receive()
"""


def list_sent(recorder: RecordingAdapter) -> list[tuple[str, bytes]]:
    return sorted((one.port, one.body) for one in recorder.sent)


def end_instances(box: Box) -> None:
    publish(box, "reply", "")
    wait_until(lambda: box.count("orchestration instances") == 0, what="the end of the instance")


def test_a_delivery_waits_for_its_own_port_and_not_for_other_subscribers(
    box: Box, tmp_path: Path, start_host: StartHost
) -> None:
    blocked = BlockedSend()

    def block_web(message: Message, attempt: Attempt) -> None:
        if message.context[BTS.SPName] == "Web":
            blocked(message, attempt)

    apply_orchestrations(box, tmp_path, DELIVER)
    recorder = RecordingAdapter(block_web)
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: list_sent(recorder) == [("Copy", b"result")], what="the other subscriber has the message")
    wait_until(lambda: box.count("queued") == 1, what="its acknowledgement was published")
    assert box.count("orchestration messages") == 1, "the order"
    blocked.released.set()
    wait_until(lambda: ("Out", b"delivered") in list_sent(recorder), what="the acknowledgement of the port")
    assert box.count("instance subscriptions") == 1, "for the reply"
    end_instances(box)
    assert box.suspended() == []
    assert check(box.connection) == []


def test_a_delivery_fails_after_the_last_attempt(box: Box, tmp_path: Path, start_host: StartHost) -> None:
    def fail_web(message: Message, attempt: Attempt) -> None:
        if message.context[BTS.SPName] == "Web":
            raise DeliveryFailure("The receiver is down.", hint="Wait.")

    apply_orchestrations(box, tmp_path, DELIVER)
    recorder = RecordingAdapter(fail_web)
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: ("Out", b"The receiver is down.") in list_sent(recorder), what="the failure")
    assert [one.port for one in recorder.attempts].count("Web") == 2
    end_instances(box)
    assert box.suspended() == [("DELIVERY", True)], "the message, and no acknowledgement"
    assert check(box.connection) == []


def test_each_port_of_a_group_acknowledges_and_the_first_one_counts(
    box: Box, tmp_path: Path, start_host: StartHost
) -> None:
    """ACK-07: other acknowledgements that come before are messages that the instance has not received."""
    group = 'app.send_port_group("Everyone", ["Web", "Copy"])\n'
    apply_orchestrations(
        box, tmp_path, DELIVER.replace("\n@app", f"\n{group}\n@app").replace('to="Web"', 'to="Everyone"')
    )
    blocked = BlockedSend()
    recorder = RecordingAdapter(blocked)
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: len(recorder.attempts) == 3, what="three attempts")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="the waiting instance")
    instance = box.orchestration_instances()[0].instance_id
    suspend(box.connection, instance)
    blocked.released.set()
    wait_until(
        lambda: [message.context.get(BTS.AckType) for message in box.messages()].count("ACK") == 3,
        what="two of the group, and one of the port that has a filter",
    )
    resume(box.connection, instance)
    wait_until(lambda: ("Out", b"delivered") in list_sent(recorder), what="the first acknowledgement")
    end_instances(box)
    assert box.suspended() == [("0xC0C01B4C", False)] * 2
    assert check(box.connection) == []


def test_a_delivery_through_a_two_way_port_suspends_the_instance_with_the_alternative(
    box: Box, tmp_path: Path, start_host: StartHost
) -> None:
    apply_orchestrations(box, tmp_path, DELIVER)
    make_two_way(box, "Web")
    start_host(RecordingAdapter())
    publish(box, "order", "")
    wait_until(lambda: box.count("suspended orchestrations") == 1, what="suspended")
    assert "Wait for its response: request(" in box.read_orchestration_error()
