"""XML by its schemas: nested envelopes, inherited properties and empty fields (RCV-07)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from lxml import etree

from postroom.errors import PipelineFailure
from postroom.pipelines import XmlReceive, load_pipeline
from postroom.pipelines.xml.receive import MAX_ENVELOPES
from postroom.properties import DistinguishedField, Property
from postroom.schemas import PromotedField, Schema, Schemas, WrittenField
from tests.unit.pipelines.conftest import Receive

Region = Property("Orders.Region", str)
Sender = Property("Orders.Sender", str)
Priority = Property("Orders.Priority", int)
Due = Property("Orders.Due", datetime)


def at(*names: str) -> str:
    return "".join(f"/*[local-name()='{name}' and namespace-uri()='']" for name in names)


def promoted(prop: Property, *path: str, **more: Any) -> PromotedField:
    return PromotedField(key=prop.key, type=int(prop.value_type), path=at(*path), **more)


def order(*fields: PromotedField, distinguished: tuple[WrittenField, ...] = ()) -> Schema:
    return Schema(message_type="order", promoted=fields, distinguished=distinguished)


def receiving(*schemas: Schema, **more: Any) -> XmlReceive:
    return XmlReceive(schemas=Schemas(schemas=schemas), **more)


def plain(*names: str) -> tuple[Schema, ...]:
    return tuple(Schema(message_type=name) for name in names)


ENVELOPES = (
    Schema(message_type="env1", envelope=True, body=at("env1"), promoted=(promoted(Sender, "env1", "@x", "none"),)),
    Schema(message_type="env2", envelope=True, body=at("env2")),
)


def test_nested_envelopes_become_their_documents_in_order(receive: Receive) -> None:
    """RCV-10, with the documents of the original."""
    pipeline = receiving(*ENVELOPES, *plain("d1", "d2", "d3", "d4"))
    received = receive(pipeline, b"<env1><d1/><env2><d2/><d3/></env2><d4/></env1>")
    assert received.bodies == [b"<d1/>", b"<d2/>", b"<d3/>", b"<d4/>"]
    assert received.numbers == [1, 2, 3, 4]
    assert received.column("message_type") == ["d1", "d2", "d3", "d4"]


def test_documents_inherit_from_every_envelope_and_the_inner_value_is_used(receive: Receive) -> None:
    outer = Schema(
        message_type="out",
        envelope=True,
        body=at("out", "docs"),
        promoted=(promoted(Sender, "out", "sender"), promoted(Region, "out", "region")),
    )
    inner = Schema(
        message_type="in", envelope=True, body=at("in", "docs"), promoted=(promoted(Region, "in", "region"),)
    )
    pipeline = receiving(outer, inner, order(promoted(Region, "order", "region")))
    received = receive(
        pipeline,
        b"<out><sender>A</sender><region>EU</region><docs><order/><in><region>US</region><docs><order/>"
        b"<order><region>DE</region></order></docs></in></docs></out>",
    )
    assert received.column(Sender.key) == ["A", "A", "A"]
    assert received.column(Region.key) == ["EU", "US", "DE"]


def test_a_document_without_an_envelope_keeps_its_bytes(receive: Receive) -> None:
    body = b'<?xml version="1.0"?>\r\n<order><region>EU</region ></order>'
    received = receive(receiving(order(promoted(Region, "order", "region"))), body)
    assert received.bodies == [body]
    assert received.column(Region.key) == ["EU"]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("", None),
        ("<priority/>", 5),
        ("<priority />", 5),
        ('<priority a="/"/>', 5),
        ("<priority></priority>", None),
        ("<priority><!-- / --></priority>", None),
        ("<priority>7</priority>", 7),
    ],
)
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16", "iso-8859-1"])
def test_only_a_self_closed_element_stands_for_its_default(
    receive: Receive, field: str, value: int | None, encoding: str
) -> None:
    """CTX-13, CTX-14."""
    pipeline = receiving(order(promoted(Priority, "order", "priority", form="int", default="5")))
    document = f'<?xml version="1.0" encoding="{encoding}"?><order><a>ü</a><b/>{field}<c></c></order>'
    assert receive(pipeline, document.encode(encoding)).column(Priority.key) == [value]


def test_self_closed_defaults_are_recognised_inside_envelopes(receive: Receive) -> None:
    pipeline = receiving(*ENVELOPES, order(promoted(Region, "order", "region", default="EU")))
    received = receive(
        pipeline,
        b"<env1><order><region></region></order><env2><order><region/></order><order><region></region></order></env2>"
        b"</env1>",
    )
    assert received.column(Region.key) == ["", "EU", ""]


@pytest.mark.parametrize(
    ("form", "text", "instant"),
    [
        ("dateTime", "2026-01-31T12:00:00Z", datetime(2026, 1, 31, 12, tzinfo=UTC)),
        ("dateTime", "2026-01-31T12:00:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("dateTime", "2026-01-31T12:00:00", datetime(2026, 1, 31, 12).astimezone(UTC)),
        ("date", "2026-01-31Z", datetime(2026, 1, 31, tzinfo=UTC)),
        ("date", "2026-01-31+02:00", datetime(2026, 1, 30, 22, tzinfo=UTC)),
        ("date", "2026-01-31", datetime(2026, 1, 31).astimezone(UTC)),
        ("gYear", "2026Z", datetime(2026, 1, 1, tzinfo=UTC)),
        ("gYearMonth", "2026-03Z", datetime(2026, 3, 1, tzinfo=UTC)),
        ("gMonthDay", "--02-29Z", datetime(1904, 2, 29, tzinfo=UTC)),
        ("gMonth", "--05Z", datetime(1904, 5, 1, tzinfo=UTC)),
        ("gDay", "---17Z", datetime(1904, 1, 17, tzinfo=UTC)),
    ],
)
def test_dates_become_instants_in_utc(receive: Receive, form: str, text: str, instant: datetime) -> None:
    """CTX-15."""
    pipeline = receiving(order(promoted(Due, "order", "due", form=form)))
    assert receive(pipeline, f"<order><due>{text}</due></order>".encode()).column(Due.key) == [instant]


@pytest.mark.parametrize(("form", "text"), [("date", "31.1.2026"), ("gMonthDay", "--02-30"), ("date", "0000-01-01")])
def test_an_invalid_date_fails_the_document(receive: Receive, form: str, text: str) -> None:
    pipeline = receiving(order(promoted(Due, "order", "due", form=form)))
    with pytest.raises(PipelineFailure, match="Due cannot be promoted"):
        receive(pipeline, f"<order><due>{text}</due></order>".encode())


def test_distinguished_fields_are_text_of_any_length(receive: Receive) -> None:
    """CTX-11."""
    path = at("order", "note")
    pipeline = receiving(order(distinguished=(WrittenField(path=path),)))
    note = "x" * 1000
    received = receive(pipeline, f"<order><note>{note}</note></order>".encode())
    assert received.column(DistinguishedField(path).key) == [note]


def test_a_document_without_a_schema_fails_unless_unrecognized_is_allowed(receive: Receive) -> None:
    """TYP-03."""
    with pytest.raises(PipelineFailure, match="There is no schema for the message type 'invoice'"):
        receive(receiving(order()), b"<invoice/>")
    received = receive(receiving(order(), allow_unrecognized=True), b"<invoice>\n</invoice>")
    assert received.bodies == [b"<invoice>\n</invoice>"]
    assert received.column("message_type") == ["invoice"]


def test_an_empty_interchange_is_unrecognised_too(receive: Receive) -> None:
    """TYP-04."""
    with pytest.raises(PipelineFailure, match="empty"):
        receive(receiving(order()), b"")
    received = receive(receiving(order(), allow_unrecognized=True), b"")
    assert (received.bodies, received.column("message_type")) == ([b""], [None])


@pytest.mark.parametrize("content", [b"region=EU", b"<order>", b"\x00\x01", b"<!DOCTYPE order><order/>"])
def test_content_that_is_not_xml_always_fails(receive: Receive, content: bytes) -> None:
    with pytest.raises(PipelineFailure):
        receive(receiving(order(), allow_unrecognized=True), content)


def test_an_unknown_document_fails_its_envelope_or_alone(receive: Receive) -> None:
    envelope = b"<env1><order/><invoice/><order/></env1>"
    with pytest.raises(PipelineFailure, match="Document 2: There is no schema"):
        receive(receiving(*ENVELOPES, order()), envelope)
    received = receive(receiving(*ENVELOPES, order(), recoverable=True), envelope)
    assert received.numbers == [1, 3]
    assert [(bad.number, bad.body) for bad in received.failures] == [(2, b"<invoice/>")]


@pytest.mark.parametrize(
    ("envelope", "reason"),
    [
        (b"<env1><docs/>text</env1>", None),
        (b"<env1>text<order/></env1>", "text between its documents"),
        (b"<env3/>", "has no body"),
    ],
)
def test_an_envelope_of_another_form_is_rejected(receive: Receive, envelope: bytes, reason: str | None) -> None:
    env3 = Schema(message_type="env3", envelope=True, body=at("env3", "docs"))
    with pytest.raises(PipelineFailure, match=reason or "text between"):
        receive(receiving(*ENVELOPES, env3, order()), envelope)


@pytest.mark.parametrize("envelope", [b"<env1/>", b"<env1> <!-- none --> </env1>", b"<env1><env2/></env1>"])
def test_an_empty_envelope_has_no_messages(receive: Receive, envelope: bytes) -> None:
    assert receive(receiving(*ENVELOPES), envelope).rows == []


def test_the_depth_of_envelopes_has_a_limit(receive: Receive) -> None:
    def nested(depth: int) -> bytes:
        return b"<env1>" * depth + b"<order/>" + b"</env1>" * depth

    pipeline = receiving(*ENVELOPES, order())
    assert receive(pipeline, nested(MAX_ENVELOPES)).bodies == [b"<order/>"]
    with pytest.raises(PipelineFailure, match="envelopes are nested"):
        receive(pipeline, nested(MAX_ENVELOPES + 1))


def test_namespaces_of_the_envelope_are_declared_in_the_document(receive: Receive) -> None:
    schemas = (
        Schema(message_type="urn:e#env", envelope=True, body="/*[local-name()='env' and namespace-uri()='urn:e']"),
        Schema(message_type="urn:o#order"),
    )
    received = receive(receiving(*schemas), b'<e:env xmlns:e="urn:e" xmlns:o="urn:o"><o:order/></e:env>')
    assert received.column("message_type") == ["urn:o#order"]
    (alone,) = received.bodies
    assert etree.fromstring(alone).tag == "{urn:o}order"


def test_batches_end_at_their_rows_or_bytes(receive: Receive) -> None:
    envelope = b"<env1>" + b"<order/>" * 5 + b"</env1>"
    assert receive(receiving(*ENVELOPES, order()), envelope, batch_rows=2).batch_sizes == [2, 2, 1]


def test_the_schemas_are_stored_with_the_pipeline() -> None:
    pipeline = receiving(*ENVELOPES, order(promoted(Due, "order", "due", form="date", default="2026-01-01")))
    stored: Mapping[str, Any] = pipeline.model_dump(mode="json")
    assert load_pipeline(stored) == pipeline


def test_a_pipeline_that_accepts_no_message_is_a_problem() -> None:
    assert receiving().problems() == [
        "There are no schemas, so every message would fail. Add schemas or set allow_unrecognized."
    ]
    assert receiving(allow_unrecognized=True).problems() == []


def test_a_default_in_an_encoding_that_only_libxml2_knows_is_a_failure_of_the_document(receive: Receive) -> None:
    pipeline = receiving(order(promoted(Region, "order", "region", form="string", default="EU")))
    with pytest.raises(PipelineFailure, match="encoding 'VISCII'"):
        receive(pipeline, b'<?xml version="1.0" encoding="VISCII"?><order><region/></order>')


def test_the_time_for_nested_envelopes_is_linear(receive: Receive) -> None:
    """A search of each body among all elements would take minutes for 200 KB."""
    envelope = Schema(message_type="e", envelope=True, body=at("e", "b"))
    pipeline = receiving(envelope, *plain("d"))
    received = receive(pipeline, b"<e><b><e>" + b"<b/>" * 50_000 + b"<b><d/></b></e></b></e>")
    assert received.bodies == [b"<d/>"]
