"""Context properties that decide about failures, and properties that only the engine may promote (INS-13, RCV-18,
PUB-13, ACC-03)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from postroom import BTS, ErrorReport, Message, Property, PublishFailed, pipelines
from postroom.agent.direct.direct_agent import Outbox
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.maps import Map
from postroom.messagebox.connection import Connection
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.pipelines import components
from postroom.ports.receive_locations import ReceiveLocation
from tests.support.box import Box, Region, interchange


class Write(components.Decoder):
    """Writes a flag to the context of the interchange."""

    property_name: str

    def decode(self, message: Message) -> Message:
        return message.with_context(message.context.write(getattr(BTS, self.property_name), True))


class Lines(components.Disassembler):
    """Makes a document of each line. A line that starts with ! goes to the suspended queue, !! is not resumable."""

    @property
    def promotes(self) -> tuple[Property, ...]:
        return (Region,)

    @property
    def recoverable(self) -> bool:
        return True

    def disassemble(self, message: Message) -> Iterator[Message]:
        for line in message.data.splitlines():
            document = Message.of(line, promoted={Region: "EU"})
            context = document.context
            if line.startswith(b"!"):
                context = context.write(BTS.MessageDestination, "SuspendQueue")
            if line.startswith(b"!!"):
                context = context.write(BTS.SuspendAsNonResumable, True)
            yield document.with_context(context)


def add_location(box: Box, **stages: Any) -> ReceiveLocation:
    return box.add_location(pipelines.Receive(**stages))


@pytest.mark.parametrize("body", [b"not json", b'{"region": "US"}'], ids=["pipeline", "routing"])
def test_a_failure_of_a_received_message_can_be_not_resumable(box: Box, body: bytes) -> None:
    """The adapter writes the property. A pipeline that fails does not change the context."""
    location = add_location(box, disassemble=[pipelines.Json(promote={Region: "region"})])
    received = interchange(body)
    received = replace(received, context=received.context.write(BTS.SuspendAsNonResumable, True))
    Receiver(box.connection, RoutingTable()).receive(location, [received])
    assert {resumable for _, resumable in box.suspended()} == {False}
    assert check(box.connection) == []


def test_a_failure_of_a_published_message_can_be_not_resumable(box: Box) -> None:
    context = Message.of(b"x", promoted={Region: "EU"}).context.write(BTS.SuspendMessageOnRoutingFailure, True)
    box.agent().publish([Message(context=context.write(BTS.SuspendAsNonResumable, True))])
    assert box.suspended() == [("ROUTING", False), ("ROUTING", False)]


def test_a_received_message_can_suppress_its_routing_failure_report(box: Box) -> None:
    reader = pipelines.Json(promote={Region: "region"})
    flag = Write(property_name="SuppressRoutingFailureDiagnosticInfo")
    location = add_location(box, decode=[flag], disassemble=[reader])
    box.receive(location, b'{"region": "US"}')
    assert box.suspended() == [("ROUTING", True)]


@pytest.mark.parametrize("is_suspended", [False, True])
def test_a_published_message_can_suppress_its_routing_failure_report(box: Box, is_suspended: bool) -> None:
    context = Message.of(b"x", promoted={Region: "EU"}).context
    context = context.write(BTS.SuppressRoutingFailureDiagnosticInfo, True)
    if is_suspended:
        box.agent().publish([Message(context=context.write(BTS.SuspendMessageOnRoutingFailure, True))])
    else:
        with pytest.raises(PublishFailed) as failed:
            box.agent().publish([Message(context=context)])
        assert failed.value.results[0].report_id is None
    assert box.suspended() == ([("ROUTING", True)] if is_suspended else [])


def test_a_disassembler_sends_documents_to_the_suspended_queue_and_the_others_continue(box: Box) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    location = add_location(box, disassemble=[Lines()])
    [received] = box.receive(location, b"one\n!two\n!!three\nfour")
    assert (received.published, received.suspended) == (2, 2)
    assert box.suspended() == [("PIPELINE", True), ("PIPELINE", False)]
    assert "MessageDestination" in box.read_error()
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []


class ForgingDisassembler(components.Disassembler):
    """Pretends that its documents are responses of a send port."""

    is_recoverable: bool = False

    @property
    def promotes(self) -> tuple[Property, ...]:
        return (BTS.SPName,)

    @property
    def recoverable(self) -> bool:
        return self.is_recoverable

    def disassemble(self, message: Message) -> Iterator[Message]:
        yield Message.of(message.data, promoted={BTS.SPName: "Forged"})


class ForgingDecoder(components.Decoder):
    def decode(self, message: Message) -> Message:
        return message.with_context(message.context.promote(BTS.ReceivePortName, "Forged"))


@pytest.mark.parametrize(
    ("stages", "forged"),
    [
        ({"disassemble": [ForgingDisassembler()]}, "BTS.SPName"),
        ({"disassemble": [ForgingDisassembler(is_recoverable=True)]}, "BTS.SPName"),
        ({"decode": [ForgingDecoder()]}, "BTS.ReceivePortName"),
    ],
)
def test_a_message_is_suspended_if_a_component_promotes_what_only_the_engine_promotes(
    box: Box, stages: dict[str, Any], forged: str
) -> None:
    """PUB-13."""
    box.add_port("Forged", f"{forged} == 'Forged'")
    box.add_port("Real", "BTS.ReceivePortName == 'OrdersIn'")
    box.receive(add_location(box, **stages), b"one")
    assert (box.queued(), box.suspended()) == ({}, [("PIPELINE", True)])
    assert f"promotes {forged}" in box.read_error()
    assert check(box.connection) == []


def test_an_interchange_is_suspended_if_its_adapter_promotes_what_only_the_engine_promotes(box: Box) -> None:
    """PUB-13."""
    box.add_port("Forged", "BTS.SPName == 'Forged'")
    received = interchange(b"one")
    received = replace(received, context=received.context.promote(BTS.SPName, "Forged"))
    Receiver(box.connection, RoutingTable()).receive(box.add_location(pipelines.PassThrough()), [received])
    assert (box.queued(), box.suspended()) == ({}, [("PIPELINE", True)])
    assert "promotes BTS.SPName" in box.read_error()


class Forge(Map):
    @property
    def promotes(self) -> tuple[Property, ...]:
        return (BTS.InboundTransportLocation,)

    def transform(self, message: Message) -> bytes:
        return message.data


def test_a_definition_that_promotes_what_the_engine_promotes_has_a_problem() -> None:
    for problems in (
        pipelines.Receive(disassemble=[ForgingDisassembler()]).problems(),
        Forge(source="a", target="b").problems(),
    ):
        [problem] = problems
        assert "is set by the engine" in problem


@pytest.mark.parametrize(
    "forged",
    [
        BTS.ReceivePortName,
        BTS.InboundTransportLocation,
        BTS.AckType,
        BTS.SPName,
        BTS.ActivationServiceID,
        BTS.InterchangeID,
        ErrorReport.ErrorType,
    ],
)
def test_a_program_cannot_promote_what_only_the_engine_promotes(box: Box, forged: Property[str]) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    good, bad = Message.of(b"x", promoted={Region: "EU"}), Message.of(b"y", promoted={Region: "EU", forged: "x"})

    def publish(connection: Connection, outbox: Outbox) -> None:
        outbox.publish(good, bad)

    for in_transaction in (False, True):
        with pytest.raises(PublishFailed, match="messages cannot be published") as failed:
            box.agent().transaction(publish) if in_transaction else box.agent().publish([good, bad])
        first, second = failed.value.results
        assert first.failure is None
        assert second.failure is not None
        assert forged.dotted_name in second.failure.what
    assert box.queued() == {}
    written = Message(context=good.context.write(forged, "x"), parts=good.parts)
    assert box.agent().publish([written])[0].subscribers == ("Europe",)


def test_a_program_can_address_the_transport_of_a_send_port(box: Box) -> None:
    box.add_port("Europe")
    transport: uuid.UUID = box.port().transport_id
    [published] = box.agent().publish([Message.of(b"x", promoted={BTS.SPTransportID: str(transport)})])
    assert published.subscribers == ("Europe",)
