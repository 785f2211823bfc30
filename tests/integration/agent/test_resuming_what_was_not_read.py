"""A document that its disassembler could not read is suspended as it came, and goes through it again when it is mended
(RCV-13, RCV-14, INS-12)."""

from __future__ import annotations

import gzip
from dataclasses import dataclass, field

import pytest

from postroom import pipelines
from postroom.errors import PipelineFailure
from postroom.messagebox.check import check
from postroom.messagebox.queues import Suspension
from postroom.pipelines import components
from postroom.properties import Property
from postroom.system_properties import BTS
from tests.integration.agent.resumable import (
    ENVELOPE,
    FLAT,
    ORDER,
    PATHS,
    RECORDS,
    Blocks,
    Sender,
    mail,
    receive,
    suspended,
)
from tests.support.box import Box, Region, Total
from tests.support.taking import QUEUES, resume_now, take


@dataclass(frozen=True, kw_only=True)
class NotRead:
    """An interchange whose second document its disassembler cannot read."""

    pipeline: pipelines.ReceivePipeline
    content: bytes
    body: bytes
    """What is kept of it."""
    mended: bytes
    document: bytes
    """What the mended one becomes."""
    keeps: dict[Property, object] = field(default_factory=dict)
    parts: tuple[str, ...] = ("body",)


NOT_READ = {
    "flat": NotRead(
        pipeline=FLAT,
        content=RECORDS.replace(b"013", b"none"),
        body=b"HDR,Acme\nEU,none,stop & go\nTRL,1\n",
        mended=b"HDR,Acme\nEU,13,stop & go\nTRL,1\n",
        document=ORDER % b"EU",
        keeps={Sender: "Acme", BTS.MessageType: "urn:orders#Order"},
    ),
    "csv": NotRead(
        pipeline=pipelines.Csv(promote=PATHS),
        content=b"region,total\nEU,1\nEU,x\n",
        body=b"region,total\nEU,x\n",
        mended=b"region,total\nEU,2\n",
        document=b"region,total\nEU,2\n",
        keeps={Total: 2},
    ),
    "xml-envelope": NotRead(
        pipeline=pipelines.XmlReceive(schemas=ENVELOPE, recoverable=True),
        content=b"<orders><sender>Acme</sender><region>EU</region><body><order/>"
        b"<order><total>x</total></order></body></orders>",
        body=b"<order><total>x</total></order>",
        mended=b"<order><total>13</total></order>",
        document=b"<order><total>13</total></order>",
        keeps={Sender: "Acme", Total: 13},
    ),
    "of-two": NotRead(
        # The second would take what the first one left.
        pipeline=pipelines.Receive(
            disassemble=[pipelines.JsonLines(promote=PATHS), pipelines.Csv(header=False)], recoverable=True
        ),
        content=b'{"region": "EU"}\nregion: EU',
        body=b"region: EU",
        mended=b'{"region": "EU", "total": 1}',
        document=b'{"region": "EU", "total": 1}',
    ),
    "mail": NotRead(
        pipeline=pipelines.Receive(
            decode=[components.Mime(body_type="application/json")], disassemble=[pipelines.JsonLines(promote=PATHS)]
        ),
        content=mail(b'{"region": "EU"}\nregion: EU'),
        body=b"region: EU",
        mended=b'{"region": "EU", "total": 1}',
        document=b'{"region": "EU", "total": 1}',
        parts=("part-1", "orders.json", "map.png"),
    ),
    "own": NotRead(
        pipeline=pipelines.Receive(disassemble=[Blocks()], recoverable=True),
        content=b"FROM Acme\nEU good\n?\n",
        body=b"FROM Acme\n?",
        mended=b"FROM Acme\nEU better",
        document=b"better",
        keeps={Sender: "FROM Acme", BTS.MessageType: "order"},
    ),
}


@pytest.mark.parametrize("name", NOT_READ)
def test_what_was_not_read_goes_through_its_disassembler_again(box: Box, name: str) -> None:
    case = NOT_READ[name]
    box.add_port("All", "BTS.ReceivePortName == 'OrdersIn'")
    received = receive(box, box.add_location(case.pipeline), case.content)
    assert (received.published, received.suspended, len(take(box))) == (1, 1, 1)
    instance_id, body, _ = suspended(box)
    assert body == case.body
    with pytest.raises(PipelineFailure):
        resume_now(box, instance_id)
    suspend_again(box)
    [resumed] = resume_now(box, instance_id, body=case.mended)
    assert (resumed.data, resumed.context[BTS.InterchangeSequenceNumber]) == (case.document, 2)
    expected = {Region: "EU", **case.keeps}
    assert {prop: resumed.context.get(prop) for prop in expected} == expected
    assert tuple(part.name for part in resumed.parts) == case.parts
    assert (box.count("instances"), check(box.connection)) == (0, [])


def suspend_again(box: Box) -> None:
    """As a host does with what it has claimed and cannot get through."""
    claim_id, seq = box.connection.execute("SELECT claim_id, seq FROM work_queue").fetchone() or (None, 0)
    assert claim_id is not None
    QUEUES.suspend(box.connection, claim_id, {seq: Suspension(code="PIPELINE", description="again")})


def test_what_an_earlier_version_has_suspended_is_probed(box: Box) -> None:
    pipeline = pipelines.Receive(
        decode=[components.Gzip()],
        disassemble=[pipelines.Xml(split="/orders/order"), pipelines.Json(promote=PATHS, split="$")],
        recoverable=True,
    )
    box.add_port("All", "BTS.ReceivePortName == 'OrdersIn'")
    receive(box, box.add_location(pipeline), gzip.compress(b'[{"region": "EU"}, {"region": 1}]'))
    take(box)
    instance_id, _, _ = suspended(box)
    box.connection.execute(
        "UPDATE spool SET context = context #- '{written,Postroom.Suspended#Form}'"
        " #- '{written,Postroom.Suspended#Disassembler}'"
    )
    [resumed] = resume_now(box, instance_id, body=b'{"region": "EU"}')
    assert resumed.context[Region] == "EU"


def test_an_error_message_says_nothing_of_how_it_would_be_kept(box: Box) -> None:
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'")
    receive(box, box.add_location(FLAT, route_failures=True), NOT_READ["flat"].content)
    [error] = [one for one in take(box) if one.data == NOT_READ["flat"].body]
    assert not [key for key in error.context.written if "Suspended" in key.partition("#")[0]]
