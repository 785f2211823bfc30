"""Interchanges of every format for tests of resuming, and pipelines that reject a document at a given stage."""

from __future__ import annotations

import email.message
import gzip
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal

from postroom import pipelines
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.maps import Map
from postroom.maps.port_maps import PortMaps
from postroom.message import Bytes, Context, Message
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.pipelines import Delimited, Field, Positional, components
from postroom.pipelines.components.contract import Consumed
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.properties import DistinguishedField, Property
from postroom.schemas import PromotedField, Schema, Schemas, WrittenField
from postroom.system_properties import BTS
from tests.support.box import Box, Region, Total

Sender = Property("Orders.Sender", str)
REJECTED_WORD, UNUSED_WORD = "stop", "(nothing)"


class SuspendOnMappingFailure(components.Decoder):
    """Sets the flag that suspends a document alone when it cannot be mapped."""

    def decode(self, message: Message) -> Message:
        return message.with_context(message.context.write(BTS.SuspendMessageOnMappingFailure, True))


class LineDisassembler(components.Disassembler):
    """Returns documents that do not contain their promoted values. The first line of the interchange is a header."""

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


class WordValidator(components.Validator):
    word: str
    recoverable: bool = True

    def validate_message(self, message: Message) -> None:
        if self.word.encode() in message.data:
            raise ValueError(f"it has the word {self.word}")


class ConsumingValidator(components.Validator):
    """Consumes every message."""

    def validate_message(self, message: Message) -> Consumed:
        return components.CONSUMED


class WordPartyResolver(components.PartyResolver):
    """Resolves no party for a message that contains the word."""

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


def path_to(*names: str) -> str:
    return "".join(f"/*[local-name()='{name}' and namespace-uri()='']" for name in names)


def promote_field(prop: Property, *path: str) -> PromotedField:
    return PromotedField(key=prop.key, type=int(prop.value_type), path=path_to(*path))


Note = DistinguishedField(path_to("order", "note"))
ENVELOPE = Schemas(
    schemas=(
        Schema(
            message_type="orders",
            envelope=True,
            body=path_to("orders", "body"),
            promoted=(promote_field(Sender, "orders", "sender"), promote_field(Region, "orders", "region")),
        ),
        Schema(
            message_type="order",
            promoted=(promote_field(Region, "order", "region"), promote_field(Total, "order", "total")),
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
FIXED_JSON = b'{"region": "US",\n "total": 13, "note": "stop"}'


@dataclass(frozen=True, kw_only=True)
class Case:
    """An interchange of two documents. The second contains the word that is rejected."""

    disassemblers: tuple[object, ...]
    content: bytes
    body: bytes
    """The body of the second document when it is suspended."""
    fixed: bytes
    """The corrected body, with another region."""
    decoders: tuple[object, ...] = ()
    message_type: str = "order"
    content_type: str = "application/json"
    expected: dict[Property, object] = field(default_factory=dict)
    """Properties that the corrected body does not contain, and the region if it is not read again."""


def make_case(disassembler: object, content: bytes, body: bytes, fixed: bytes, **more: object) -> Case:
    return Case(disassemblers=(disassembler,), content=content, body=body, fixed=fixed, **more)  # type: ignore[arg-type]


def mail(content: bytes) -> bytes:
    message = email.message.EmailMessage()
    message.set_content("See the attachments.")
    message.add_attachment(content, maintype="application", subtype="json", filename="orders.json")
    message.add_attachment(b"(a picture)", maintype="image", subtype="png", filename="map.png")
    return message.as_bytes()


LINES = make_case(pipelines.JsonLines(promote=PATHS, message_type="order"), b"\n".join(JSON), JSON[1], FIXED_JSON)
CASES = {
    "flat-xml": make_case(
        FLAT,
        RECORDS,
        ORDER % b"EU",
        ORDER % b"US",
        message_type="urn:orders#Order",
        content_type="application/xml",
        expected={Sender: "Acme"},
    ),
    "flat-json": make_case(
        FLAT.model_copy(update={"output": "json"}),
        RECORDS,
        b'{"region":"EU","total":13,"note":"stop & go"}',
        b'{"total": 13, "region": "US", "note": "stop"}',
        message_type="urn:orders#Order",
        expected={Sender: "Acme"},
    ),
    "flat-lines": make_case(
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
    "csv": make_case(
        pipelines.Csv(promote=PATHS, message_type="order", delimiter=";"),
        b"region;total;note\r\nEU;12.50;good\r\nEU;13;stop\r\n",
        b"region;total;note\r\nEU;13;stop\r\n",
        b"total;note;region\n13;stop;US\n",
        content_type="text/csv",
    ),
    "csv-names": make_case(
        pipelines.Csv(promote=PATHS, message_type="order", header=["region", "total", "note"]),
        b"EU,12.50,good\nEU,13,stop\n",
        b"EU,13,stop\n",
        b"US,13,stop\n",
        content_type="text/csv",
    ),
    "json-lines": LINES,
    "json-path": make_case(
        pipelines.Json(promote=PATHS, message_type="order", split="batch.orders", recoverable=True),
        b'{"batch": {"orders": [%b, %b]}}' % (JSON[0], JSON[1]),
        JSON[1],
        FIXED_JSON,
    ),
    "json-array": make_case(
        pipelines.Json(promote=PATHS, message_type="order", split="$", recoverable=True),
        b"[%b, %b]" % (JSON[0], JSON[1]),
        JSON[1],
        FIXED_JSON,
    ),
    "xml-split": make_case(
        pipelines.Xml(promote={Region: "/order/region", Total: "/order/@total"}, split="/orders/order"),
        b'<orders><order total="12.50"><region>EU</region></order>'
        b'<order total="13"><region>EU</region>stop</order></orders>',
        b'<order total="13"><region>EU</region>stop</order>',
        b'<order total="13"><region>US</region>stop</order>',
        content_type="application/xml",
    ),
    "xml-envelope": make_case(
        pipelines.XmlReceive(schemas=ENVELOPE, recoverable=True),
        b"<orders><sender>Acme</sender><region>EU</region><body><order><region>CH</region></order>"
        b"<order><total>13</total><note>stop</note></order></body></orders>",
        b"<order><total>13</total><note>stop</note></order>",
        b"<order><region>US</region><total>13</total><note>stop, fixed</note></order>",
        content_type="application/xml",
        expected={Sender: "Acme", Note: "stop, fixed"},
    ),
    "own": make_case(
        LineDisassembler(),
        b"FROM Acme\nEU good\nEU stop\n",
        b"stop",
        b"stop, fixed",
        content_type="application/octet-stream",
        expected={Sender: "FROM Acme", Region: "EU"},
    ),
    "pass-through": Case(
        disassemblers=(),
        content=b"stop",
        body=b"stop",
        fixed=b"fixed",
        message_type="",
        content_type="application/octet-stream",
        expected={Region: None},
    ),
    "second-of-two": replace(
        LINES,
        disassemblers=(FLAT, *LINES.disassemblers, pipelines.Csv(promote={Region: "region"})),
        decoders=(components.Gzip(),),
        content=gzip.compress(LINES.content),
    ),
    "mail": replace(LINES, decoders=(components.Mime(body_type="application/json"),), content=mail(LINES.content)),
}


def build_pipeline(case: Case, stage: str | None) -> pipelines.Receive:
    """Return a pipeline that rejects the second document at the stage, or at none."""
    return pipelines.Receive(
        decode=[SuspendOnMappingFailure(), *case.decoders],
        disassemble=case.disassemblers,
        validate=[WordValidator(word=REJECTED_WORD if stage == "validate" else UNUSED_WORD)],
        resolve_party=[WordPartyResolver(word=REJECTED_WORD if stage == "authenticate" else UNUSED_WORD)],
        recoverable=True,
    )


def apply_pipeline(box: Box, case: Case, stage: str | None, *, mapped: bool) -> ReceiveLocation:
    """Store a pipeline that rejects the second document at the stage, and return its location."""
    maps = [
        ToInvoice(source=case.message_type, target="invoice", word=REJECTED_WORD if stage == "map" else UNUSED_WORD)
    ]
    box.set_locations(pipeline=build_pipeline(case, stage).model_dump(mode="json"))
    box.set_receive_ports(maps=PortMaps(maps=maps if mapped else []).model_dump(mode="json"))
    [location] = read_receive_locations(box.connection)
    return location


def receive(box: Box, location: ReceiveLocation, content: bytes) -> ReceiveResult:
    context = Context().write(BTS.OriginatorSID, "anna").write(BTS.SourceParty, "test")
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(content), context=context)
    with connect(box.url, user=box.host().role_name) as connection:
        (received,) = Receiver(connection, RoutingTable()).receive(location, [interchange])
    assert check(box.connection) == []
    return received


def read_suspended_document(box: Box) -> tuple[uuid.UUID, bytes, str]:
    """Return the instance, the body and the interchange id of the last suspended document."""
    rows = [row for row in box.suspended_rows() if row.body is not None]
    # A whole interchange has no number, and comes first.
    last = max(rows, key=lambda row: row.context.get(BTS.InterchangeSequenceNumber) or 1 << 30)
    return last.instance_id, last.body or b"", last.context[BTS.InterchangeID]
