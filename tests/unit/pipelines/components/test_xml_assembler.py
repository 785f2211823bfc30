"""The XML assembler: demotion and envelopes, the inverse of ``pipelines.Xml`` and ``XmlReceive`` (CTX-26)."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from postroom.errors import PipelineFailure
from postroom.message import Message
from postroom.pipelines import Send, Xml, XmlReceive, XmlTransmit, components
from postroom.pipelines.send.definition import load_send_pipeline
from postroom.properties import Property
from postroom.schemas import PromotedField, Schema, Schemas
from tests.support.round_trip import receive_messages, send

Region = Property("Orders.Region", str)
Number = Property("Orders.Number", int)
Total = Property("Orders.Total", Decimal)
Weight = Property("Orders.Weight", float)
Urgent = Property("Orders.Urgent", bool)
Placed = Property("Orders.Placed", datetime)
Sender = Property("Orders.Sender", str)
NAMESPACES = {"o": "urn:orders"}
PATHS: dict[Property, str] = {
    Region: "/o:order/o:customer/@o:region",
    Number: "/o:order/@number",
    Total: "/o:order/o:totals/net",
    Weight: "/o:order/weight",
    Urgent: "/o:order/o:urgent",
    Placed: "/o:order/placed",
}
ORDER = b'<o:order xmlns:o="urn:orders"><o:customer><name>Acme</name></o:customer><weight/></o:order>'

XML_TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"], exclude_characters="\ufffe\uffff"), max_size=50)
VALUES = st.fixed_dictionaries(
    {},
    optional={
        Region: XML_TEXT,
        Number: st.integers(-(2**63), 2**63 - 1),
        Total: st.decimals(-(10**12), 10**12, places=3),
        Weight: st.floats(allow_nan=False, allow_infinity=False),
        Urgent: st.booleans(),
        Placed: st.datetimes(datetime(1900, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - the strategy adds the zone
    },
)


def assemble(document: bytes, promoted: dict[Property, Any], **settings: Any) -> Message:
    pipeline = XmlTransmit(**settings)
    stored = load_send_pipeline(pipeline.model_dump(mode="json"))
    message = Message.of(document, promoted=promoted)
    sent = send(pipeline, message)
    assert send(stored, message).data == sent.data
    return sent


def canonical(document: bytes) -> bytes:
    return etree.tostring(etree.fromstring(document), method="c14n", exclusive=True)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
@given(values=VALUES)
def test_the_paths_that_promote_a_property_demote_it(encoding: str, values: dict[Property, Any]) -> None:
    sent = assemble(ORDER, values, demote=PATHS, namespaces=NAMESPACES, encoding=encoding)
    [received] = receive_messages(Xml(promote=PATHS, namespaces=NAMESPACES), sent)
    assert {prop: received.context.get(prop) for prop in PATHS} == {prop: values.get(prop) for prop in PATHS}
    assert etree.fromstring(sent.data).findtext("{urn:orders}customer/name") == "Acme"


def test_a_document_is_put_into_an_envelope_and_split_from_it() -> None:
    envelope = components.XmlEnvelope(
        '<!-- a batch --><b:batch xmlns:b="urn:b"><b:sender/><b:orders kind="new"/></b:batch>',
        body="/b:batch/b:orders",
        demote={Sender: "/b:batch/b:sender", Region: "/b:batch/b:region"},
        namespaces={"b": "urn:b"},
    )
    assert envelope.problems() == []
    sent = assemble(ORDER, {Sender: "Acme & Co", Region: "EU"}, envelope=envelope)
    assert sent.data == (
        b"<?xml version='1.0' encoding='utf-8'?>\n"
        b'<!-- a batch --><b:batch xmlns:b="urn:b"><b:sender>Acme &amp; Co</b:sender><b:orders kind="new">'
        + ORDER
        + b"</b:orders><b:region>EU</b:region></b:batch>"
    )
    [received] = receive_messages(Xml(split="/*/*/o:order", namespaces=NAMESPACES), sent)
    assert canonical(received.data) == canonical(ORDER)


def test_a_date_is_written_in_utc_with_seven_digits() -> None:
    moment = datetime(2026, 1, 31, 13, 30, tzinfo=timezone(timedelta(hours=1)))
    sent = assemble(b"<a><b/></a>", {Placed: moment}, demote={Placed: "/a/b"}, declaration=False)
    assert sent.data == b"<a><b>2026-01-31T12:30:00.0000000Z</b></a>"


def test_the_document_keeps_what_is_not_demoted() -> None:
    document = b'<?xml version="1.0"?>\n<!-- c --><a x="1"><?p i?><b>old</b> &#233;<c/></a>'
    sent = assemble(document, {Region: "EU"}, demote={Region: "//b", Number: "/a/@x"}, declaration=False)
    assert sent.data.decode() == '<!-- c --><a x="1"><?p i?><b>EU</b> é<c/></a>'


def test_a_nil_element_and_comments_are_replaced() -> None:
    document = b'<a xmlns:i="http://www.w3.org/2001/XMLSchema-instance"><b i:nil="true"/><c>x<!-- y -->z</c></a>'
    sent = assemble(document, {Region: "EU", Sender: "S"}, demote={Region: "/a/b", Sender: "/a/c"}, declaration=False)
    assert b"<b>EU</b><c>S</c>" in sent.data


@pytest.mark.parametrize(
    ("path", "document", "reason"),
    [
        ("/a/b", b"<a><b/><b/></a>", "It selects 2 nodes"),
        ("/a/b", b"<a><b><c/></b></a>", "The element has child elements"),
        ("/a/b[@k='1']", b"<a/>", "The XPath selects nothing"),
        ("/a/b", b"<x/>", "The root of the document is x"),
        ("/a/comment()", b"<a><!-- c --></a>", "It selects neither an element"),
        ("/a/b", b"<a>", "not well-formed XML"),
        ("/a/b", b"<!DOCTYPE a><a/>", "DOCTYPE"),
    ],
)
def test_a_document_that_cannot_be_assembled_is_a_failure(path: str, document: bytes, reason: str) -> None:
    with pytest.raises(PipelineFailure, match=reason):
        assemble(document, {Region: "EU"}, demote={Region: path})


def test_a_value_that_xml_cannot_represent_is_a_failure_without_the_value() -> None:
    for document in (b"<a><b/></a>", b"<a/>"):
        with pytest.raises(PipelineFailure, match="XML cannot represent its value") as caught:
            assemble(document, {Region: "secret\x01"}, demote={Region: "/a/b"})
        assert "secret" not in str(caught.value)


def at(*names: str) -> str:
    return "".join(f"/*[local-name()='{name}' and namespace-uri()='']" for name in names)


def promoted(prop: Property, *path: str, **more: Any) -> PromotedField:
    return PromotedField(key=prop.key, type=int(prop.value_type), path=at(*path), **more)


SCHEMAS = Schemas(
    schemas=(
        Schema(
            message_type="order",
            promoted=(
                promoted(Region, "order", "region"),
                promoted(Number, "order", "number"),
                promoted(Placed, "order", "placed", form="date"),
            ),
        ),
    )
)


def test_the_annotations_of_a_schema_demote_into_nodes_that_exist() -> None:
    """The same schema promotes the values when the document is received."""
    day = datetime(2026, 1, 31).astimezone()
    document = b"<order><region>US</region><placed/></order>"
    values: dict[Property, Any] = {Region: "EU", Number: 7, Placed: day}
    sent = assemble(document, values, schemas=SCHEMAS, declaration=False)
    assert sent.data == b"<order><region>EU</region><placed>2026-01-31</placed></order>"
    [received] = receive_messages(XmlReceive(schemas=SCHEMAS), sent)
    assert (received.context[Region], received.context[Placed]) == ("EU", day)
    assert XmlTransmit(schemas=SCHEMAS).demotes == (Number, Placed, Region)
    assert assemble(b"<memo/>", values, schemas=SCHEMAS, declaration=False).data == b"<memo/>"


def test_the_shorthand_is_a_send_pipeline() -> None:
    assert (
        XmlTransmit(encoding="utf-16").assemblers
        == Send(assemble=components.XmlAssembler(encoding="utf-16")).assemblers
    )


def test_wrong_settings_are_problems() -> None:
    envelope = components.XmlEnvelope("<a><b/><b/></a>", body="/a/b")
    assembler = components.XmlAssembler(
        demote={Region: "/o:order", Number: ""}, envelope=envelope, encoding="rot13", declaration=False
    )
    assert assembler.problems() == [
        "The path of Orders.Number is empty.",
        "The XPath '/o:order' of Orders.Region cannot be read: undefined namespace prefix.",
        "XML cannot be written in the encoding 'rot13'.",
        "Only UTF-8 can be read without an XML declaration, and encoding is 'rot13'.",
        "envelope: The XPath '/a/b' selects 2 nodes of the envelope; it must select an element.",
    ]
    assert components.XmlEnvelope("<a>", body="/a").problems() != []
    assert components.XmlEnvelope("<a/>", body="/a[").problems() != []
