"""An unreadable document is suspended as received and disassembled again when resumed (RCV-13, RCV-14, INS-12)."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field

import pytest

from postroom import pipelines
from postroom.errors import PipelineFailure
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.queues import Suspension
from postroom.pipelines import components
from postroom.properties import Property
from postroom.system_properties import BTS
from tests.integration.agent.resuming_cases import (
    ENVELOPE,
    FLAT,
    ORDER,
    PATHS,
    RECORDS,
    LineDisassembler,
    Sender,
    mail,
    read_suspended_document,
    receive,
)
from tests.support.box import Box, Region, Total
from tests.support.dequeue import QUEUES, dequeue_all, resume_now


@dataclass(frozen=True, kw_only=True)
class UnreadableCase:
    """An interchange whose second document is unreadable."""

    pipeline: pipelines.ReceivePipeline
    content: bytes
    body: bytes
    """The body of the suspended document."""
    fixed: bytes
    document: bytes
    """The document that is published after the correction."""
    expected: dict[Property, object] = field(default_factory=dict)
    parts: tuple[str, ...] = ("body",)


CASES = {
    "flat": UnreadableCase(
        pipeline=FLAT,
        content=RECORDS.replace(b"013", b"none"),
        body=b"HDR,Acme\nEU,none,stop & go\nTRL,1\n",
        fixed=b"HDR,Acme\nEU,13,stop & go\nTRL,1\n",
        document=ORDER % b"EU",
        expected={Sender: "Acme", BTS.MessageType: "urn:orders#Order"},
    ),
    "csv": UnreadableCase(
        pipeline=pipelines.Csv(promote=PATHS),
        content=b"region,total\nEU,1\nEU,x\n",
        body=b"region,total\nEU,x\n",
        fixed=b"region,total\nEU,2\n",
        document=b"region,total\nEU,2\n",
        expected={Total: 2},
    ),
    "xml-envelope": UnreadableCase(
        pipeline=pipelines.XmlReceive(schemas=ENVELOPE, recoverable=True),
        content=b"<orders><sender>Acme</sender><region>EU</region><body><order/>"
        b"<order><total>x</total></order></body></orders>",
        body=b"<order><total>x</total></order>",
        fixed=b"<order><total>13</total></order>",
        document=b"<order><total>13</total></order>",
        expected={Sender: "Acme", Total: 13},
    ),
    "of-two": UnreadableCase(
        # The second disassembler would accept the line that the first cannot read.
        pipeline=pipelines.Receive(
            disassemble=[pipelines.JsonLines(promote=PATHS), pipelines.Csv(header=False)], recoverable=True
        ),
        content=b'{"region": "EU"}\nregion: EU',
        body=b"region: EU",
        fixed=b'{"region": "EU", "total": 1}',
        document=b'{"region": "EU", "total": 1}',
    ),
    "mail": UnreadableCase(
        pipeline=pipelines.Receive(
            decode=[components.Mime(body_type="application/json")], disassemble=[pipelines.JsonLines(promote=PATHS)]
        ),
        content=mail(b'{"region": "EU"}\nregion: EU'),
        body=b"region: EU",
        fixed=b'{"region": "EU", "total": 1}',
        document=b'{"region": "EU", "total": 1}',
        parts=("part-1", "orders.json", "map.png"),
    ),
    "own": UnreadableCase(
        pipeline=pipelines.Receive(disassemble=[LineDisassembler()], recoverable=True),
        content=b"FROM Acme\nEU good\n?\n",
        body=b"FROM Acme\n?",
        fixed=b"FROM Acme\nEU better",
        document=b"better",
        expected={Sender: "FROM Acme", BTS.MessageType: "order"},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_resumed_unreadable_document_is_disassembled_again(box: Box, name: str) -> None:
    case = CASES[name]
    box.add_port("All", "BTS.ReceivePortName == 'OrdersIn'")
    received = receive(box, box.add_location(case.pipeline), case.content)
    assert (received.published, received.suspended, len(dequeue_all(box))) == (1, 1, 1)
    instance_id, body, _ = read_suspended_document(box)
    assert body == case.body
    with pytest.raises(PipelineFailure):
        resume_now(box, instance_id)
    suspend_again(box)
    [resumed] = resume_now(box, instance_id, body=case.fixed)
    assert (resumed.data, resumed.context[BTS.InterchangeSequenceNumber]) == (case.document, 2)
    expected = {Region: "EU", **case.expected}
    assert {prop: resumed.context.get(prop) for prop in expected} == expected
    assert tuple(part.name for part in resumed.parts) == case.parts
    assert (box.count("instances"), check(box.connection)) == (0, [])


def suspend_again(box: Box) -> None:
    """Suspend the claimed document again, as a host does after a failure."""
    [row] = box.queued_rows()
    claim_id, seq = row.claim_id, row.seq
    assert claim_id is not None
    QUEUES.suspend(box.connection, claim_id, {seq: Suspension(code="PIPELINE", description="again")})


def test_a_document_suspended_by_an_earlier_version_is_probed_for_its_format(box: Box) -> None:
    pipeline = pipelines.Receive(
        decode=[components.Gzip()],
        disassemble=[pipelines.Xml(split="/orders/order"), pipelines.Json(promote=PATHS, split="$")],
        recoverable=True,
    )
    box.add_port("All", "BTS.ReceivePortName == 'OrdersIn'")
    receive(box, box.add_location(pipeline), gzip.compress(b'[{"region": "EU"}, {"region": 1}]'))
    dequeue_all(box)
    instance_id, _, _ = read_suspended_document(box)
    box.remove_properties("Postroom.Suspended#Form", "Postroom.Suspended#Disassembler")
    [resumed] = resume_now(box, instance_id, body=b'{"region": "EU"}')
    assert resumed.context[Region] == "EU"


def test_an_error_message_has_no_properties_of_suspended_documents(box: Box) -> None:
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'")
    receive(box, box.add_location(FLAT, route_failures=True), CASES["flat"].content)
    [error] = [message for message in dequeue_all(box) if message.data == CASES["flat"].body]
    assert not [key for key in error.context.written if "Suspended" in key.partition("#")[0]]
