"""The maps of a send port: the message that its adapter sends."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from postroom import maps
from postroom.errors import DefinitionRefused, MapFailure
from postroom.maps.port_maps import PortMaps
from postroom.maps.running import RunningMaps
from postroom.message import Bytes, Context, Message, Part
from postroom.pipelines import XmlReceive
from postroom.pipelines.documents.disassembled_batch import MAX_DOCUMENT_SIZE
from postroom.properties import DistinguishedField, Property
from postroom.schemas import PromotedField, Schema, Schemas, WrittenField
from postroom.system_properties import BTS

Region = Property("Orders.Region", str)
Amount = Property("Invoices.Amount", Decimal)
NOTE = "/*[local-name()='invoice']/*[local-name()='note']"
Note = DistinguishedField(NOTE)

SCHEMA = Schema(
    message_type="invoice",
    promoted=(
        PromotedField(key=Amount.key, type=3, path="/*[local-name()='invoice']/*[local-name()='amount']"),
        PromotedField(key=Region.key, type=1, path="/*[local-name()='invoice']/*[local-name()='region']"),
    ),
    distinguished=(WrittenField(path=NOTE),),
)
READ = XmlReceive(schemas=Schemas(schemas=(SCHEMA,)))
ORDER: dict[str, Any] = {"source": "order", "target": "invoice"}


def outbound(folder: Path, **settings: Any) -> RunningMaps:
    one = maps.Xslt("order-to-invoice.xslt", **ORDER, **settings)
    return PortMaps.pack([one], folder).running


def order(content: bytes = b"<order><total>5</total><note>n</note></order>") -> Message:
    context = Context().promote(BTS.MessageType, "order").promote(Region, "EU").write(BTS.SPName, "Invoices")
    parts = (Part(name="extra", body=Bytes(b"x")), Part(body=Bytes(content), charset="utf-8"))
    return Message(context=context, parts=parts, body_part_name="body")


def test_a_mapped_message_keeps_its_id_its_other_parts_and_its_properties(folder: Path) -> None:
    given = order()
    sent = outbound(folder, read=READ).map_message(given)
    assert (sent.message_id, sent.parts[0]) == (given.message_id, given.parts[0])
    assert sent.body is not None
    assert (sent.body.content_type, sent.body.charset) == ("application/xml", None)
    assert b"<amount>5</amount>" in sent.data
    assert sent.context[BTS.SPName] == "Invoices"
    assert (sent.context[BTS.MessageType], sent.context[Amount]) == ("invoice", Decimal(5))
    # The target may promote it, but the new document has no value.
    assert Region not in sent.context


def test_a_distinguished_field_of_the_target_is_written_and_not_promoted(folder: Path) -> None:
    sent = outbound(folder, read=READ).map_message(order())
    assert sent.context.written[Note.key] == "n"
    assert Note.key not in sent.context.promoted


def test_messages_of_another_type_or_without_a_type_are_not_changed(folder: Path) -> None:
    for given in (Message.of(b"x"), Message.of(b"x", promoted={BTS.MessageType: "memo"})):
        assert outbound(folder).map_message(given) is given


def test_a_mapping_failure_has_the_name_of_the_map(folder: Path) -> None:
    for given, reason in (
        (order(b"no XML"), "order-to-invoice.xslt: The document is not well-formed"),
        (order(b" " * (MAX_DOCUMENT_SIZE + 1)), "order-to-invoice.xslt: The message has 67,108,865 bytes"),
        (Message(context=order().context), "order-to-invoice.xslt: The message has no body"),
    ):
        with pytest.raises(MapFailure, match=reason):
            outbound(folder).map_message(given)


def test_a_map_can_be_tried_out(folder: Path) -> None:
    one = maps.Xslt("order-to-invoice.xslt", **ORDER)
    assert b"<amount>7</amount>" in maps.try_out(one, b"<order><total>7</total></order>", folder=folder).data
    with pytest.raises(DefinitionRefused, match="the file"):
        maps.try_out(maps.Xslt("none.xslt", **ORDER), b"<order/>", folder=folder)
