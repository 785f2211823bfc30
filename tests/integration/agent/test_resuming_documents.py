"""A document that was suspended alone goes on where it was stopped: every format, and every stage that may refuse one
(INS-12, RCV-13, 15, 16, 17). Resumed when the cause is mended, it is what it would have been in the first place."""

from __future__ import annotations

import email.message
import gzip
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal

import pytest
from psycopg.types.json import Jsonb

from postroom import pipelines
from postroom.agent.interchange import Interchange
from postroom.agent.receiving import Received, Receiver
from postroom.agent.routing import RoutingTable
from postroom.errors import AuthenticationFailure, PipelineFailure
from postroom.maps import Map
from postroom.maps.port_maps import PortMaps
from postroom.message import Bytes, Context, Message
from postroom.messagebox.check import check
from postroom.messagebox.configuration import ReceiveLocation, receive_locations
from postroom.messagebox.connection import connect
from postroom.messagebox.queues import Suspension
from postroom.operations import ports
from postroom.operations.explaining import explain_message
from postroom.pipelines import Delimited, Field, Positional, components
from postroom.pipelines.components.contract import Consumed
from postroom.properties import DistinguishedField, Property
from postroom.schemas import PromotedField, Schema, Schemas, WrittenField
from postroom.system_properties import BTS
from postroom.values import Value
from tests.support.box import Box, Region, Total
from tests.support.taking import QUEUES, resume_now, take

Sender = Property("Orders.Sender", str)
REFUSED, NOTHING = "stop", "(nothing)"


class Alone(components.Decoder):
    """Has a document suspended alone that cannot be mapped."""

    def decode(self, message: Message) -> Message:
        return message.with_context(message.context.write(BTS.SuspendMessageOnMappingFailure, True))


class Blocks(components.Disassembler):
    """Documents that say nothing of what is promoted; the first line is about all of them."""

    @property
    def promotes(self) -> tuple[Property, ...]:
        return (Region, Sender, Total)

    def disassemble(self, message: Message) -> Iterator[Message | components.Suspend]:
        sender, *lines = message.data.splitlines()
        if not sender.startswith(b"FROM "):
            raise ValueError("this is no interchange")
        for line in lines:
            if line == b"?":
                yield components.Suspend(body=sender + b"\n" + line, reason="there is a question mark")
                continue
            region, _, text = line.partition(b" ")
            promoted = {BTS.MessageType: "order", Region: region.decode(), Sender: sender.decode(), Total: len(text)}
            yield Message.of(text, promoted=promoted)


class Refusing(components.Validator):
    word: str
    recoverable: bool = True

    def validate_message(self, message: Message) -> None:
        if self.word.encode() in message.data:
            raise ValueError(f"it has the word {self.word}")


class Consuming(components.Validator):
    """Lets everything go."""

    def validate_message(self, message: Message) -> Consumed:
        return components.CONSUMED


class Named(components.PartyResolver):
    """Knows nobody who writes that word."""

    word: str

    def resolve(self, message: Message) -> str | None:
        return None if self.word.encode() in message.data else "Contoso"


class ToInvoice(Map):
    word: str

    @property
    def promotes(self) -> tuple[Property, ...]:
        return (Total,)

    def transform(self, message: Message) -> Message:
        if self.word.encode() in message.data:
            raise ValueError(f"it has the word {self.word}")
        context = message.context.promote(Total, Decimal("7.5"))
        return message.with_body(Bytes(b"<invoice>%b</invoice>" % message.data)).with_context(context)


def at(*names: str) -> str:
    return "".join(f"/*[local-name()='{name}' and namespace-uri()='']" for name in names)


def promoted(prop: Property, *path: str) -> PromotedField:
    return PromotedField(key=prop.key, type=int(prop.value_type), path=at(*path))


Note = DistinguishedField(at("order", "note"))
ENVELOPE = Schemas(
    schemas=(
        Schema(
            message_type="orders",
            envelope=True,
            body=at("orders", "body"),
            promoted=(promoted(Sender, "orders", "sender"), promoted(Region, "orders", "region")),
        ),
        Schema(
            message_type="order",
            promoted=(promoted(Region, "order", "region"), promoted(Total, "order", "total")),
            distinguished=(WrittenField(path=Note.name),),
        ),
    )
)
FLAT = pipelines.FlatFile(
    message_type="urn:orders#Order",
    header=Delimited(["sender"], tag="HDR"),
    record=Delimited(["region", Field("total", Decimal), "note"]),
    trailer=Delimited([Field("count", int)], tag="TRL"),
    count="count",
    promote={Region: "region", Total: "total", Sender: "header.sender"},
)
RECORDS = b"HDR,Acme\nEU,12.50,good\nEU,013,stop & go\nTRL,2\n"
ORDER = b'<ns0:Order xmlns:ns0="urn:orders"><region>%b</region><total>13</total><note>stop &amp; go</note></ns0:Order>'
PATHS = {Region: "region", Total: "total"}
JSON = [b'{"region": "EU", "total": 12.50}', b'{"region": "EU", "total": 13, "note": "stop"}']
MENDED_JSON = b'{"region": "US",\n "total": 13, "note": "stop"}'


@dataclass(frozen=True, kw_only=True)
class Case:
    """An interchange of two documents, of which the second has the word that some refuse."""

    disassemblers: tuple[object, ...]
    content: bytes
    body: bytes
    """What is kept of the second."""
    mended: bytes
    """The same, from another region."""
    decoders: tuple[object, ...] = ()
    message_type: str = "order"
    content_type: str = "application/json"
    keeps: dict[Property, object] = field(default_factory=dict)
    """What a mended one has that does not stand in it; and its region, if it is not read from it."""


def case(disassembler: object, content: bytes, body: bytes, mended: bytes, **more: object) -> Case:
    return Case(disassemblers=(disassembler,), content=content, body=body, mended=mended, **more)  # type: ignore[arg-type]


def mail(content: bytes) -> bytes:
    made = email.message.EmailMessage()
    made.set_content("See the attachments.")
    made.add_attachment(content, maintype="application", subtype="json", filename="orders.json")
    made.add_attachment(b"(a picture)", maintype="image", subtype="png", filename="map.png")
    return made.as_bytes()


LINES = case(pipelines.JsonLines(promote=PATHS, message_type="order"), b"\n".join(JSON), JSON[1], MENDED_JSON)
CASES = {
    "flat-xml": case(
        FLAT,
        RECORDS,
        ORDER % b"EU",
        ORDER % b"US",
        message_type="urn:orders#Order",
        content_type="application/xml",
        keeps={Sender: "Acme"},
    ),
    "flat-json": case(
        FLAT.model_copy(update={"output": "json"}),
        RECORDS,
        b'{"region":"EU","total":13,"note":"stop & go"}',
        b'{"total": 13, "region": "US", "note": "stop"}',
        message_type="urn:orders#Order",
        keeps={Sender: "Acme"},
    ),
    "flat-lines": case(
        pipelines.FlatFile(
            message_type="order",
            record=Positional([Field("region", width=2), Field("total", Decimal, width=4)], tag="O"),
            lines={"Line": Positional([Field("item", width=4)], tag="L")},
            promote={Region: "region", Total: "total"},
        ),
        b"OEU12.5\nLnone\nOEU0013\nLstop\nLmore\n",
        b"<order><region>EU</region><total>13</total><Line><item>stop</item></Line><Line><item>more</item></Line></order>",
        b"<order><region>US</region><total>13</total><Line><item>stop</item></Line></order>",
        content_type="application/xml",
    ),
    "csv": case(
        pipelines.Csv(promote=PATHS, message_type="order", delimiter=";"),
        b"region;total;note\r\nEU;12.50;good\r\nEU;13;stop\r\n",
        b"region;total;note\r\nEU;13;stop\r\n",
        b"total;note;region\n13;stop;US\n",
        content_type="text/csv",
    ),
    "csv-names": case(
        pipelines.Csv(promote=PATHS, message_type="order", header=["region", "total", "note"]),
        b"EU,12.50,good\nEU,13,stop\n",
        b"EU,13,stop\n",
        b"US,13,stop\n",
        content_type="text/csv",
    ),
    "json-lines": LINES,
    "json-path": case(
        pipelines.Json(promote=PATHS, message_type="order", split="batch.orders", recoverable=True),
        b'{"batch": {"orders": [%b, %b]}}' % (JSON[0], JSON[1]),
        JSON[1],
        MENDED_JSON,
    ),
    "json-array": case(
        pipelines.Json(promote=PATHS, message_type="order", split="$", recoverable=True),
        b"[%b, %b]" % (JSON[0], JSON[1]),
        JSON[1],
        MENDED_JSON,
    ),
    "xml-split": case(
        pipelines.Xml(promote={Region: "/order/region", Total: "/order/@total"}, split="/orders/order"),
        b'<orders><order total="12.50"><region>EU</region></order>'
        b'<order total="13"><region>EU</region>stop</order></orders>',
        b'<order total="13"><region>EU</region>stop</order>',
        b'<order total="13"><region>US</region>stop</order>',
        content_type="application/xml",
    ),
    "xml-envelope": case(
        pipelines.XmlReceive(schemas=ENVELOPE, recoverable=True),
        b"<orders><sender>Acme</sender><region>EU</region><body><order><region>CH</region></order>"
        b"<order><total>13</total><note>stop</note></order></body></orders>",
        b"<order><total>13</total><note>stop</note></order>",
        b"<order><region>US</region><total>13</total><note>stop, mended</note></order>",
        content_type="application/xml",
        keeps={Sender: "Acme", Note: "stop, mended"},
    ),
    "own": case(
        Blocks(),
        b"FROM Acme\nEU good\nEU stop\n",
        b"stop",
        b"stop, mended",
        content_type="application/octet-stream",
        keeps={Sender: "FROM Acme", Region: "EU"},
    ),
    "pass-through": Case(
        disassemblers=(),
        content=b"stop",
        body=b"stop",
        mended=b"mended",
        message_type="",
        content_type="application/octet-stream",
        keeps={Region: None},
    ),
    "second-of-two": replace(
        LINES,
        disassemblers=(FLAT, *LINES.disassemblers, pipelines.Csv(promote={Region: "region"})),
        decoders=(components.Gzip(),),
        content=gzip.compress(LINES.content),
    ),
    "mail": replace(LINES, decoders=(components.Mime(body_type="application/json"),), content=mail(LINES.content)),
}


def pipeline(case: Case, stage: str | None) -> pipelines.Receive:
    """That refuses the second document at this stage, or at none."""
    return pipelines.Receive(
        decode=[Alone(), *case.decoders],
        disassemble=case.disassemblers,
        validate=[Refusing(word=REFUSED if stage == "validate" else NOTHING)],
        resolve_party=[Named(word=REFUSED if stage == "authenticate" else NOTHING)],
        recoverable=True,
    )


def change(box: Box, case: Case, stage: str | None, *, mapped: bool) -> ReceiveLocation:
    """Applies the definition that refuses at this stage."""
    maps = [ToInvoice(source=case.message_type, target="invoice", word=REFUSED if stage == "map" else NOTHING)]
    box.connection.execute(
        "UPDATE receive_locations SET pipeline = %s, maps = %s",
        (
            Jsonb(pipeline(case, stage).model_dump(mode="json")),
            Jsonb(PortMaps(maps=maps).model_dump(mode="json") if mapped else {}),
        ),
    )
    [location] = receive_locations(box.connection)
    return location


def receive(box: Box, location: ReceiveLocation, content: bytes) -> Received:
    context = Context().write(BTS.OriginatorSID, "anna").write(BTS.SourceParty, "test")
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(content), context=context)
    with connect(box.url, user=box.host().role_name) as connection:
        (received,) = Receiver(connection, RoutingTable()).receive(location, [interchange])
    assert check(box.connection) == []
    return received


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


def suspended(box: Box) -> tuple[uuid.UUID, bytes, str]:
    """The instance of the last document that is suspended, its body, and the interchange that it came with."""
    row = box.connection.execute(
        "SELECT q.instance_id, p.body, s.context->'written'->>'BTS#InterchangeID' FROM suspended_queue q"
        " JOIN spool s USING (message_id) JOIN parts p ON p.part_id = s.body_part_id"
        " ORDER BY (s.context->'promoted'->>'BTS#InterchangeSequenceNumber')::int DESC LIMIT 1"
    ).fetchone()
    assert row is not None
    return row[0], row[1], row[2]


@pytest.mark.parametrize("name", CASES)
def test_resumed_it_is_what_it_would_have_been(furnished: Box, name: str) -> None:
    box, case = furnished, CASES[name]
    for mapped in (False, True) if case.message_type else (False,):
        receive(box, change(box, case, None, mapped=mapped), case.content)
        expected = max(take(box), key=lambda one: int(str(one.context[BTS.InterchangeSequenceNumber])))
        assert b"stop" in expected.data
        for stage in ("map", "authenticate") if mapped else ("validate", "authenticate", "route"):
            if stage == "route":
                ports.unenlist(box.connection, "All")
            received = receive(box, change(box, case, stage, mapped=mapped), case.content)
            assert received.suspended == (1 if stage != "route" or not case.disassemblers else 2)
            assert len(take(box)) == received.published
            instance_id, body, interchange_id = suspended(box)
            assert body == (expected.data if (mapped, stage) == (True, "authenticate") else case.body)
            change(box, case, None, mapped=mapped)
            if stage == "route":
                ports.start(box.connection, "All")
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


def test_a_component_may_let_a_resumed_document_go(furnished: Box) -> None:
    """RCV-05."""
    box, case = furnished, CASES["flat-xml"]
    receive(box, change(box, case, "validate", mapped=False), case.content)
    take(box)
    consuming = pipeline(case, None).model_copy(update={"validators": (Consuming(),)})
    box.connection.execute("UPDATE receive_locations SET pipeline = %s", (Jsonb(consuming.model_dump(mode="json")),))
    assert resume_now(box, suspended(box)[0]) == []
    assert (box.count("instances"), check(box.connection)) == (0, [])


def test_an_error_message_says_nothing_of_how_it_would_be_kept(box: Box) -> None:
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'")
    receive(box, box.add_location(FLAT, route_failures=True), NOT_READ["flat"].content)
    [error] = [one for one in take(box) if one.data == NOT_READ["flat"].body]
    assert not [key for key in error.context.written if "Suspended" in key.partition("#")[0]]


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
