"""A document that was suspended alone goes on where it was stopped: every format, and every stage that may refuse one
(INS-12, RCV-13, 15, 16, 17). Resumed when the cause is mended, it is what it would have been in the first place."""

from __future__ import annotations

import uuid
from dataclasses import replace

import pytest
from psycopg.types.json import Jsonb

from postroom import pipelines
from postroom.agent.receiving.interchange import Interchange
from postroom.agent.receiving.receiver import Receiver
from postroom.agent.routing.table import RoutingTable
from postroom.errors import AuthenticationFailure, PipelineFailure
from postroom.message import Bytes, Message
from postroom.messagebox.check import check
from postroom.messagebox.connection import connect
from postroom.operations.explain.explanation import explain_message
from postroom.operations.ports import send_ports
from postroom.system_properties import BTS
from postroom.values import Value
from tests.integration.agent.resumable import CASES, Consuming, Sender, change, pipeline, receive, suspended
from tests.support.box import Box, Region
from tests.support.taking import resume_now, take


@pytest.fixture
def furnished(box: Box) -> Box:
    box.add_port("All", "BTS.ReceivePortName == 'OrdersIn'")
    box.connection.execute("SELECT set_trust(%s::smallint, true)", (box.host().host_id,))
    box.add_location(pipelines.PassThrough())
    box.connection.execute("UPDATE receive_ports SET authentication = 'keep'")
    return box


def content_of(message: Message) -> list[tuple[str, str, bytes]]:
    return [(part.name, part.content_type, part.data) for part in message.parts]


def properties(message: Message) -> tuple[dict[str, Value], dict[str, Value]]:
    """Those that are promoted, and those that are written, but for that of the interchange."""
    written = {key: value for key, value in message.context.written.items() if key != BTS.InterchangeID.key}
    return dict(message.context.promoted), written


@pytest.mark.parametrize("name", CASES)
def test_resumed_it_is_what_it_would_have_been(furnished: Box, name: str) -> None:
    box, case = furnished, CASES[name]
    for mapped in (False, True) if case.message_type else (False,):
        receive(box, change(box, case, None, mapped=mapped), case.content)
        expected = max(take(box), key=lambda one: int(str(one.context[BTS.InterchangeSequenceNumber])))
        assert b"stop" in expected.data
        for stage in ("map", "authenticate") if mapped else ("validate", "authenticate", "route"):
            if stage == "route":
                send_ports.unenlist(box.connection, "All")
            received = receive(box, change(box, case, stage, mapped=mapped), case.content)
            assert received.suspended == (1 if stage != "route" or not case.disassemblers else 2)
            assert len(take(box)) == received.published
            instance_id, body, interchange_id = suspended(box)
            assert body == (expected.data if (mapped, stage) == (True, "authenticate") else case.body)
            change(box, case, None, mapped=mapped)
            if stage == "route":
                send_ports.start(box.connection, "All")
            [resumed] = resume_now(box, instance_id)
            assert content_of(resumed) == content_of(expected), stage
            assert properties(resumed) == properties(expected), stage
            assert resumed.context[BTS.InterchangeID] == interchange_id
            assert check(box.connection) == []


@pytest.mark.parametrize("name", CASES)
def test_a_mended_one_is_read_again(furnished: Box, name: str) -> None:
    """It has the form of the one that was kept."""
    box, case = furnished, CASES[name]
    receive(box, change(box, case, "validate", mapped=False), case.content)
    take(box)
    instance_id, _, _ = suspended(box)
    change(box, case, None, mapped=False)
    [resumed] = resume_now(box, instance_id, body=case.mended)
    assert resumed.data == case.mended
    assert resumed.body is not None
    assert resumed.body.content_type == case.content_type
    assert resumed.context.get(BTS.MessageType, "") == case.message_type
    assert {prop: resumed.context.get(prop) for prop in (Region, *case.keeps)} == {Region: "US", **case.keeps}


def test_explained_is_what_resuming_would_do(furnished: Box) -> None:
    box, case = furnished, CASES["flat-xml"]
    receive(box, change(box, case, "validate", mapped=False), case.content)
    change(box, case, None, mapped=False)
    kept = box.one("SELECT message_id FROM suspended_queue")
    [explained] = explain_message(box.connection, kept)
    assert explained.failure is None
    assert (explained.context[Sender], explained.context[Region]) == ("Acme", "EU")
    assert explained.context[BTS.InterchangeSequenceNumber] == 2


def test_a_disassembler_that_is_gone_is_missed(furnished: Box) -> None:
    box, case = furnished, CASES["second-of-two"]
    receive(box, change(box, case, "validate", mapped=False), case.content)
    take(box)
    instance_id, _, _ = suspended(box)
    change(box, replace(case, disassemblers=case.disassemblers[:1]), None, mapped=False)
    with pytest.raises(PipelineFailure, match="has no disassembler 2 any more"):
        resume_now(box, instance_id)


def test_a_component_may_let_a_resumed_document_go(furnished: Box) -> None:
    """RCV-05."""
    box, case = furnished, CASES["flat-xml"]
    receive(box, change(box, case, "validate", mapped=False), case.content)
    take(box)
    consuming = pipeline(case, None).model_copy(update={"validators": (Consuming(),)})
    box.connection.execute("UPDATE receive_locations SET pipeline = %s", (Jsonb(consuming.model_dump(mode="json")),))
    assert resume_now(box, suspended(box)[0]) == []
    assert (box.count("instances"), check(box.connection)) == (0, [])


def test_who_resumes_a_document_does_not_stand_for_it(furnished: Box) -> None:
    """SEC-11: the account that has stored it is nobody that it is from."""
    box, case = furnished, CASES["json-lines"]
    location = change(box, case, None, mapped=False)
    with connect(box.url, user=box.host().role_name) as connection:
        nobody = Interchange(interchange_id=uuid.uuid4(), body=Bytes(case.content))
        (received,) = Receiver(connection, RoutingTable()).receive(location, [nobody])
    assert received.suspended == 1
    with pytest.raises(AuthenticationFailure):
        resume_now(box, suspended(box)[0])
