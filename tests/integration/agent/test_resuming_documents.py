"""A resumed document continues at the stage that rejected it, for every format (INS-12, RCV-13, 15, 16, 17)."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest

from postroom import pipelines
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import AuthenticationFailure, PipelineFailure
from postroom.message import Bytes, Message
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.operations.explain.explanation import explain_message
from postroom.operations.ports import send_ports
from postroom.system_properties import BTS
from postroom.values import Value
from tests.integration.agent.resuming_cases import (
    CASES,
    ConsumingValidator,
    Sender,
    apply_pipeline,
    build_pipeline,
    read_suspended_document,
    receive,
)
from tests.support.box import Box, Region
from tests.support.dequeue import dequeue_all, resume_now
from tests.support.host_settings import set_trust


@pytest.fixture
def prepared_box(box: Box) -> Box:
    box.add_port("All", "BTS.ReceivePortName == 'OrdersIn'")
    set_trust(box.connection, box.host().host_id)
    box.add_location(pipelines.PassThrough())
    box.set_authentication("keep")
    return box


def read_parts(message: Message) -> list[tuple[str, str, bytes]]:
    return [(part.name, part.content_type, part.data) for part in message.parts]


def read_properties(message: Message) -> tuple[dict[str, Value], dict[str, Value]]:
    """Return the promoted and the written properties, without BTS.InterchangeID."""
    written = {key: value for key, value in message.context.written.items() if key != BTS.InterchangeID.key}
    return dict(message.context.promoted), written


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_document_equals_one_that_never_failed(prepared_box: Box, name: str) -> None:
    box, case = prepared_box, CASES[name]
    for mapped in (False, True) if case.message_type else (False,):
        receive(box, apply_pipeline(box, case, None, mapped=mapped), case.content)
        expected = max(dequeue_all(box), key=lambda message: int(str(message.context[BTS.InterchangeSequenceNumber])))
        assert b"stop" in expected.data
        for stage in ("map", "authenticate") if mapped else ("validate", "authenticate", "route"):
            if stage == "route":
                send_ports.unenlist(box.connection, "All")
            received = receive(box, apply_pipeline(box, case, stage, mapped=mapped), case.content)
            assert received.suspended == (1 if stage != "route" or not case.disassemblers else 2)
            assert len(dequeue_all(box)) == received.published
            instance_id, body, interchange_id = read_suspended_document(box)
            assert body == (expected.data if (mapped, stage) == (True, "authenticate") else case.body)
            apply_pipeline(box, case, None, mapped=mapped)
            if stage == "route":
                send_ports.start(box.connection, "All")
            [resumed] = resume_now(box, instance_id)
            assert read_parts(resumed) == read_parts(expected), stage
            assert read_properties(resumed) == read_properties(expected), stage
            assert resumed.context[BTS.InterchangeID] == interchange_id
            assert check(box.connection) == []


@pytest.mark.parametrize("name", CASES)
def test_a_corrected_document_is_read_again(prepared_box: Box, name: str) -> None:
    """The corrected body has the format of the suspended body."""
    box, case = prepared_box, CASES[name]
    receive(box, apply_pipeline(box, case, "validate", mapped=False), case.content)
    dequeue_all(box)
    instance_id, _, _ = read_suspended_document(box)
    apply_pipeline(box, case, None, mapped=False)
    [resumed] = resume_now(box, instance_id, body=case.fixed)
    assert resumed.data == case.fixed
    assert resumed.body is not None
    assert resumed.body.content_type == case.content_type
    assert resumed.context.get(BTS.MessageType, "") == case.message_type
    assert {prop: resumed.context.get(prop) for prop in (Region, *case.expected)} == {Region: "US", **case.expected}


def test_explain_shows_the_result_of_resuming(prepared_box: Box) -> None:
    box, case = prepared_box, CASES["flat-xml"]
    receive(box, apply_pipeline(box, case, "validate", mapped=False), case.content)
    apply_pipeline(box, case, None, mapped=False)
    message_id = box.suspended_rows()[0].message_id
    [explained] = explain_message(box.connection, message_id)
    assert explained.failure is None
    assert (explained.context[Sender], explained.context[Region]) == ("Acme", "EU")
    assert explained.context[BTS.InterchangeSequenceNumber] == 2


def test_resuming_fails_if_the_disassembler_was_removed(prepared_box: Box) -> None:
    box, case = prepared_box, CASES["second-of-two"]
    receive(box, apply_pipeline(box, case, "validate", mapped=False), case.content)
    dequeue_all(box)
    instance_id, _, _ = read_suspended_document(box)
    apply_pipeline(box, replace(case, disassemblers=case.disassemblers[:1]), None, mapped=False)
    with pytest.raises(PipelineFailure, match="has no disassembler 2, which made this document"):
        resume_now(box, instance_id)


def test_a_component_can_consume_a_resumed_document(prepared_box: Box) -> None:
    """RCV-05."""
    box, case = prepared_box, CASES["flat-xml"]
    receive(box, apply_pipeline(box, case, "validate", mapped=False), case.content)
    dequeue_all(box)
    consuming = build_pipeline(case, None).model_copy(update={"validators": (ConsumingValidator(),)})
    box.set_locations(pipeline=consuming.model_dump(mode="json"))
    assert resume_now(box, read_suspended_document(box)[0]) == []
    assert (box.count("instances"), check(box.connection)) == (0, [])


def test_resuming_a_document_does_not_authenticate_it(prepared_box: Box) -> None:
    """SEC-11: the login that stored the document is not its originator."""
    box, case = prepared_box, CASES["json-lines"]
    location = apply_pipeline(box, case, None, mapped=False)
    with connect(box.url, user=box.host().role_name) as connection:
        unauthenticated = Interchange(interchange_id=uuid.uuid4(), body=Bytes(case.content))
        (received,) = Receiver(connection, RoutingTable()).receive(location, [unauthenticated])
    assert received.suspended == 1
    with pytest.raises(AuthenticationFailure):
        resume_now(box, read_suspended_document(box)[0])
