"""Logical ports: what orchestrations send reaches the port that an operator has bound the logical port to (ORC-13)."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.errors import StateError
from postroom.messagebox.maintenance.check import check
from postroom.operations.orchestrations.bindings import bind, unbind
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.orchestrations import apply_orchestrations, has_ended, publish
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

#: Sends each reply through the logical port ``Out``.
FORWARD = """
app.send_port("Other", adapters.Null(), host="Default")
app.send_port("Subscriber", adapters.Null(), filter=Kind == "result", host="Default")
app.send_port_group("Everyone", ["Out", "Other"])

@app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
async def forward(order: Message) -> None:
    replies = Replies.of(order)
    while (reply := await replies.receive()).data != b"end":
        await orchestrations.send(Message.of(reply.data), to="Out")
"""


def list_sent(recorder: RecordingAdapter) -> list[tuple[str, bytes]]:
    return sorted((one.port, one.body) for one in recorder.sent)


def test_a_waiting_instance_sends_its_next_message_to_the_port_that_an_operator_has_bound(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-13, ORS-10: without an apply. FLT-13: a port, a group, and back to the port with the same name."""
    apply_orchestrations(box, tmp_path, FORWARD)
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="the waiting instance")
    publish(box, "reply", "1")
    wait_until(lambda: list_sent(recorder) == [("Out", b"1")], what="the port with the same name")
    change = bind(box.connection, "forward", "Out", "Other")
    assert (change.before, change.after) == ("Out", "Other")
    publish(box, "reply", "2")
    wait_until(lambda: ("Other", b"2") in list_sent(recorder), what="the bound port")
    bind(box.connection, "forward", "Out", "Everyone")
    publish(box, "reply", "3")
    wait_until(lambda: {("Other", b"3"), ("Out", b"3")} <= set(list_sent(recorder)), what="the group")
    assert unbind(box.connection, "forward", "Out").after == "Out"
    publish(box, "reply", "4", "end")
    wait_until(lambda: has_ended(box), what="the end of the instance")
    wait_until(lambda: len(recorder.sent) == 5, what="five messages")
    assert list_sent(recorder) == [("Other", b"2"), ("Other", b"3"), ("Out", b"1"), ("Out", b"3"), ("Out", b"4")]
    assert check(box.connection) == []


def test_a_logical_port_that_is_bound_directly_publishes_for_whoever_subscribes(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """FLT-13, ORC-13: the message passes the MessageBox, and has no transport id."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        app.send_port("Subscriber", adapters.Null(), filter=Kind == "result", host="Default")

        @app.orchestration(activate=Kind == "order", host="Default")
        async def answer(order: Message) -> None:
            await orchestrations.send(Message.of(b"", promoted={Kind: "result"}), to="Out")
        """,
    )
    bind(box.connection, "answer", "Out", None)
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: [one.port for one in recorder.sent] == ["Subscriber"] and has_ended(box), what="the subscriber")


def test_an_application_binds_a_logical_port_to_a_port_with_another_name(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """FLT-13: ``bindings`` of the declaration, to a port, to a dynamic port and directly."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        from postroom.system_properties import BTS

        courier = app.send_port("Courier", adapters.Null(), host="Default")
        app.dynamic_send_port("Anywhere", host="Default")
        app.send_port("Subscriber", adapters.Null(), filter=Kind == "result", host="Default")

        @app.orchestration(
            activate=Kind == "order",
            bindings={"Shipping": courier, "Address": "Anywhere", "Announcements": None},
            host="Default",
        )
        async def ship(order: Message) -> None:
            await orchestrations.send(Message.of(b"1"), to="Shipping")
            message = Message.of(b"2", written={BTS.OutboundTransportLocation: "null://"})
            await orchestrations.send(message, to="Address")
            await orchestrations.send(Message.of(b"3", promoted={Kind: "result"}), to="Announcements")
        """,
    )
    start_host(recorder)
    publish(box, "order", "")
    expected = [("Anywhere", b"2"), ("Courier", b"1"), ("Subscriber", b"3")]
    wait_until(lambda: list_sent(recorder) == expected, what="the bound ports")


def test_a_delivery_through_a_bound_port_is_acknowledged_by_that_port(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ACK-01: ``deliver`` waits for the port that the logical port is bound to."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        app.send_port("Other", adapters.Null(), host="Default")

        @app.orchestration(activate=Kind == "order", host="Default")
        async def ship(order: Message) -> None:
            await orchestrations.deliver(Message.of(b"goods"), to="Out")
            await orchestrations.send(Message.of(b"invoice"), to="Out")
        """,
    )
    bind(box.connection, "ship", "Out", "Other")
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: has_ended(box) and len(recorder.sent) == 2, what="the end of the instance")
    assert list_sent(recorder) == [("Other", b"goods"), ("Other", b"invoice")]


def test_a_replay_after_a_new_binding_repeats_no_send(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-31, ORC-13: the journal has the logical port. What was sent before stays with the port of that time."""
    apply_orchestrations(box, tmp_path, FORWARD)
    first = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="the waiting instance")
    publish(box, "reply", "1")
    wait_until(lambda: list_sent(recorder) == [("Out", b"1")], what="the first message")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="the waiting instance")
    first.stop()
    bind(box.connection, "forward", "Out", "Other")
    start_host(recorder)
    publish(box, "reply", "2", "end")
    wait_until(lambda: has_ended(box) and len(recorder.sent) == 2, what="the end of the instance")
    assert list_sent(recorder) == [("Other", b"2"), ("Out", b"1")]


def test_a_called_orchestration_sends_through_the_bindings_of_its_caller(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORS-05: it runs inside the instance of the caller, so its logical ports are those of the caller, too."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        app.send_port("Other", adapters.Null(), host="Default")

        @app.orchestration(host="Default")
        async def part(order: Message) -> None:
            await orchestrations.send(Message.of(b"part"), to="Out")

        @app.orchestration(activate=Kind == "order", host="Default")
        async def whole(order: Message) -> None:
            await part(order)
        """,
    )
    bind(box.connection, "whole", "Out", "Other")
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: list_sent(recorder) == [("Other", b"part")], what="the bound port")


def test_a_binding_is_refused_if_the_port_cannot_do_what_the_code_asks_of_it(box: Box, tmp_path: Path) -> None:
    """ORC-13: the checks of ``plan`` apply to a new binding, too."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        app.send_port("Prices", adapters.Http("http://localhost:1/"), two_way=True, host="Default")

        @app.orchestration(activate=Kind == "order", host="Default")
        async def ask(order: Message) -> None:
            await orchestrations.request(Message.of(b""), to="Prices")
            await orchestrations.deliver(Message.of(b""), to="Out")
        """,
    )
    for port, target, why in (
        ("Prices", "Out", "The send port 'Out' is one-way"),
        ("Out", "Prices", "The send port 'Prices' is two-way"),
        ("Out", None, "The logical port 'Out' is bound directly"),
        ("Prices", None, "The logical port 'Prices' is bound directly"),
    ):
        with pytest.raises(StateError, match=f"cannot be bound to '{target or 'direct'}'") as refused:
            bind(box.connection, "ask", port, target)
        assert why in refused.value.why


def test_messages_are_sent_once_while_bindings_change(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-32: a persistence point is repeated with the new binding if that was changed in the meantime."""
    apply_orchestrations(box, tmp_path, FORWARD)
    for _ in range(2):
        start_host(recorder)
    keys = [str(key) for key in range(4)]
    for key in keys:
        publish(box, "order", "", key=key)
    wait_until(lambda: box.count("unclaimed orchestrations") == len(keys), what="the waiting instances")
    for number in range(15):
        for key in keys:
            publish(box, "reply", f"{key} {number}", key=key)
        bind(box.connection, "forward", "Out", "Out" if number % 2 else "Other")
    for key in keys:
        publish(box, "reply", "end", key=key)
    wait_until(lambda: has_ended(box) and box.count("suspended orchestrations") == 0, what="the end of the instances")
    expected = sorted(f"{key} {number}".encode() for key in keys for number in range(15))
    wait_until(lambda: len(recorder.sent) >= len(expected), what="all messages")
    assert sorted(one.body for one in recorder.sent) == expected
    assert check(box.connection) == []


def test_a_port_is_removed_right_after_its_logical_port_was_bound_to_another_one(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """SPT-09: a host that has sent through the removed port before gets no routing failure."""
    apply_orchestrations(box, tmp_path, FORWARD)
    bind(box.connection, "forward", "Out", "Other")
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="the waiting instance")
    publish(box, "reply", "1")
    wait_until(lambda: list_sent(recorder) == [("Other", b"1")], what="the first message")
    unbind(box.connection, "forward", "Out")
    without = FORWARD.replace('app.send_port("Other", adapters.Null(), host="Default")\n', "").replace(
        ', "Other"]', "]"
    )
    apply_orchestrations(box, tmp_path, without)
    publish(box, "reply", "2", "end")
    wait_until(lambda: has_ended(box), what="the end of the instance")
    wait_until(lambda: list_sent(recorder) == [("Other", b"1"), ("Out", b"2")], what="the second message")
    assert check(box.connection) == []
