"""Messages and contexts: MSG-01, 04, CTX-01 … 07, 11."""

from __future__ import annotations

from decimal import Decimal

import pytest

from postroom.errors import BadValue
from postroom.message import Bytes, Context, Message, Part
from postroom.properties import DistinguishedField, Property

Region = Property("Orders.Region", str)
OtherRegion = Property("Invoices.Region", str)
Total = Property("Orders.Total", Decimal)


def test_two_properties_of_one_name_in_two_namespaces_coexist() -> None:
    context = Context().promote(Region, "EU").promote(OtherRegion, "US")
    assert (context[Region], context[OtherRegion]) == ("EU", "US")


def test_writing_a_promoted_property_demotes_it() -> None:
    promoted = Context().promote(Region, "EU")
    written = promoted.write(Region, "US")
    assert not written.is_promoted(Region)
    assert written[Region] == "US"
    assert written.promote(Region, "EU") == promoted


def test_the_values_of_a_merged_context_take_precedence() -> None:
    merged = (
        Context()
        .promote(Region, "EU")
        .write(Total, Decimal(1))
        .merge(Context().write(Region, "US").promote(Total, Decimal(2)).require(Region, "EU"))
    )
    assert (dict(merged.promoted), dict(merged.written)) == ({Total.key: 2}, {Region.key: "US"})
    assert merged.predicates == {(Region.key, "EU")}


def test_none_removes_and_an_absent_property_reads_as_none() -> None:
    context = Context().promote(Region, "EU").write(Total, Decimal(1))
    assert len(context.promote(Region, None).write(Total, None)) == 0
    assert Context().get(Region) is None
    assert Region not in Context()


@pytest.mark.parametrize("length", [255, 256])
def test_a_promoted_text_has_at_most_256_characters(length: int) -> None:
    Context().promote(Region, "x" * length)
    Context().write(Region, "x" * 10_000)
    with pytest.raises(BadValue, match=r"Orders\.Region.*at most 256 characters"):
        Context().promote(Region, "x" * 257)


def test_a_context_can_be_stored_and_read() -> None:
    context = Context().promote(Region, "é'\"").promote(Total, Decimal("10.50")).write(OtherRegion, "x")
    assert Context.from_json(context.to_json()) == context
    assert [prop.key for prop in context] == ["Orders#Region", "Orders#Total", "Invoices#Region"]


def test_reading_a_missing_property_names_it() -> None:
    """CTX-24."""
    context = Message.of(b"", promoted={}).context
    assert Region not in context
    with pytest.raises(KeyError, match=r"The message has no property Orders\.Region\."):
        context[Region]


def test_a_context_cannot_be_changed_in_place() -> None:
    context = Context().promote(Region, "EU")
    with pytest.raises(TypeError):
        context.promoted["Orders#Region"] = "US"  # type: ignore[index]
    assert context.promote(Region, "US") != context


def test_a_distinguished_field_is_written_under_its_path_and_never_promoted() -> None:
    note = DistinguishedField("/*[local-name()='order']/note")
    context = Context().write(note, "long " * 100)
    assert context[note] == "long " * 100
    assert context.promoted == {}
    assert Context.from_json(context.to_json()) == context
    assert next(iter(context)) == note
    with pytest.raises(BadValue, match="cannot be promoted"):
        context.promote(note, "short")


def test_a_message_has_any_number_of_parts_and_one_body() -> None:
    assert Message().body is None
    message = Message.of(b"body", parts=[Part(name="note", body=Bytes(b"n"))])
    assert [part.name for part in message.parts] == ["body", "note"]
    assert message.body is message.parts[0]
    with pytest.raises(BadValue, match="same name"):
        Message.of(b"", parts=[Part(name="body", body=Bytes(b""))])
    with pytest.raises(BadValue, match="not one of the parts"):
        Message(parts=(Part(body=Bytes(b"")),), body_part_name="other")
    with pytest.raises(BadValue, match="NUL"):
        Part(name="a\0b", body=Bytes(b""))


def test_a_changed_message_has_a_new_id() -> None:
    message = Message.of(b"body", promoted={Region: "EU"})
    changed = message.with_context(message.context.promote(Region, "US"))
    assert changed.message_id != message.message_id
    assert changed.parts[0].part_id != message.parts[0].part_id
    assert changed.parts[0].data == b"body"
    assert message.context[Region] == "EU"
    with pytest.raises(AttributeError):
        message.context = changed.context  # type: ignore[misc]


def test_only_a_property_can_be_in_a_context() -> None:
    for change in (Context().promote, Context().write):
        with pytest.raises(BadValue, match=r"'Orders\.Region' is not a property") as error:
            change("Orders.Region", "EU")  # type: ignore[arg-type]
        assert "Property(" in error.value.hint


def test_a_property_has_one_value() -> None:
    """CTX-17."""
    context = Context().promote(Region, "EU").promote(Region, "US")
    assert (context[Region], len(context.promoted)) == ("US", 1)
    with pytest.raises(BadValue):
        context.promote(Region, ["EU", "US"])  # type: ignore[arg-type]
