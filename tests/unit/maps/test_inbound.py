"""The maps of a receive port: which messages are mapped, the results, and the failures."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import MapFailure, PipelineFailure
from postroom.maps import Map, Python, Xslt
from postroom.maps.inbound import MappedPipeline
from postroom.maps.port_maps import NO_MAPS, PortMaps, load_maps
from postroom.message import FRAGMENT_SIZE, Bytes, Context, Message
from postroom.pipelines import Json, JsonLines, Receive, Xml, XmlReceive, components
from postroom.pipelines.documents.disassembled_batch import DisassembledBatch
from postroom.properties import Property
from postroom.schemas import PromotedField, Schema, Schemas
from postroom.system_properties import BTS
from postroom.temporary_bodies import slice_body

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Amount = Property("Invoices.Amount", Decimal)
ALONE = BTS.SuspendMessageOnMappingFailure

ORDERS = Xml(promote={Region: "/order/@region", Total: "/order/total"}, split="/orders/*")


def mapped(pipeline: Any, *maps: Map, folder: Path = Path(__file__).parent) -> MappedPipeline:
    return MappedPipeline(pipeline, PortMaps.pack(maps, folder))


def run(pipeline: MappedPipeline, content: bytes, **options: Any) -> list[DisassembledBatch]:
    batches = list(pipeline.disassemble(Bytes(content), **options))
    for batch in batches:
        batch.messages.validate(full=True)
    return batches


def rows(batches: list[DisassembledBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.messages.to_pylist()]


def to_invoice(message: Message) -> bytes:
    assert message.context[BTS.MessageType] == "order"
    if b"bad" in message.data:
        raise ValueError("a bad order")
    return message.data.replace(b"order", b"invoice")


def for_ever(message: Message) -> bytes:
    if b"bad" in message.data:
        while True:
            time.sleep(0.001)
    return b"<invoice/>"


def ends_the_process(message: Message) -> bytes:
    raise SystemExit(3)


def in_which_thread(message: Message) -> bytes:
    return f"<invoice>{threading.get_ident()}</invoice>".encode()


ORDER: dict[str, Any] = {"source": "order", "target": "invoice"}
READ = Xml(promote={Total: "/invoice/amount", Amount: "/invoice/amount"})


# -- mapped messages and their properties --------------------------------------------------------------------------


def test_the_map_for_the_message_type_is_used_and_others_are_not_changed(folder: Path) -> None:
    """RCV-20."""
    pipeline = mapped(ORDERS, Xslt("order-to-invoice.xslt", **ORDER, read=READ), folder=folder)
    [one, other] = rows(run(pipeline, b'<orders><order region="EU"><total>5.50</total></order><memo/></orders>'))
    assert b"<amount>5.50</amount>" in one["body"]
    assert (one["message_type"], one["content_type"], one["number"]) == ("invoice", "application/xml", 1)
    assert (other["body"], other["message_type"], other["content_type"]) == (b"<memo/>", "memo", None)


def test_properties_of_the_target_are_promoted_again_and_others_stay(folder: Path) -> None:
    """RCV-20."""
    pipeline = mapped(ORDERS, Xslt("order-to-invoice.xslt", **ORDER, read=READ), folder=folder)
    [one, memo] = rows(run(pipeline, b'<orders><order region="EU"><total>5</total></order><memo/></orders>'))
    assert (one[Region.key], one[Total.key], one[Amount.key]) == ("EU", 5, 5)
    assert (memo[Region.key], memo[Total.key], memo[Amount.key]) == (None, None, None)


def test_a_value_that_is_absent_in_the_new_document_is_not_promoted() -> None:
    pipeline = mapped(ORDERS, Python(to_invoice, **ORDER, read=READ))
    [one] = rows(run(pipeline, b"<orders><order><total>5</total></order></orders>"))
    assert one[Total.key] is None


def test_the_schema_of_the_target_defines_what_is_promoted(folder: Path) -> None:
    path = "/*[local-name()='invoice' and namespace-uri()='']/*[local-name()='amount' and namespace-uri()='']"
    schema = Schema(
        message_type="invoice", promoted=(PromotedField(key=Amount.key, type=3, path=path, form="decimal"),)
    )
    read = XmlReceive(schemas=Schemas(schemas=(schema,)))
    pipeline = mapped(ORDERS, Xslt("order-to-invoice.xslt", **ORDER, read=read), folder=folder)
    [one] = rows(run(pipeline, b"<orders><order><total>7.25</total></order></orders>"))
    assert one[Amount.key] == Decimal("7.25")


def test_a_message_without_a_type_passes_unmapped() -> None:
    pipeline = mapped(Json(), Python(to_invoice, **ORDER))
    [one] = rows(run(pipeline, b'{"a": 1}'))
    assert (one["body"], one["message_type"]) == (b'{"a": 1}', None)


class Priced(Map):
    """A map with a setting that promotes a property itself."""

    rate: int

    @property
    def promotes(self) -> tuple[Property, ...]:
        return (Amount,)

    def transform(self, message: Message) -> Message:
        amount = message.context[Total] * self.rate
        changed = message.with_body(b"<invoice/>")
        return changed.with_context(changed.context.promote(Amount, amount))


def test_a_map_class_has_settings_and_can_promote_properties() -> None:
    [one] = rows(run(mapped(ORDERS, Priced(**ORDER, rate=2)), b"<orders><order><total>4</total></order></orders>"))
    assert (one[Amount.key], one[Total.key]) == (8, 4)


class Undeclared(Map):
    def transform(self, message: Message) -> Message:
        return Message.of(b"<invoice/>", promoted={Amount: Decimal(1)})


def test_a_map_that_promotes_an_undeclared_property_fails() -> None:
    with pytest.raises(MapFailure, match="which is not in its promotes"):
        run(mapped(ORDERS, Undeclared(**ORDER)), b"<orders><order/></orders>")


def test_large_mapped_and_unmapped_documents_are_passed_by_reference() -> None:
    long, memo = b"x" * (FRAGMENT_SIZE + 1), b"<memo>" + b"y" * (FRAGMENT_SIZE + 1) + b"</memo>"
    interchange = b"<orders><order>%b</order>%b<order>small</order></orders>" % (long, memo)
    batches = run(mapped(ORDERS, Python(to_invoice, **ORDER)), interchange)
    found = rows(batches)
    source = batches[-1].decoded
    assert source is not None
    bodies = [row["body"] or b"".join(slice_body(source.body, row["offset"], row["length"]).chunks()) for row in found]
    assert bodies == [b"<invoice>%b</invoice>" % long, memo, b"<invoice>small</invoice>"]


# -- failures ------------------------------------------------------------------------------------------------------

FOUR = b"<orders><order>1</order><order>bad</order><order>3</order><memo/></orders>"
LINES = b'{"order": 1}\n{"order": "bad"}\n{"order": 3}\n'


def lines(**settings: Any) -> JsonLines:
    return JsonLines(message_type="order", **settings)


def test_a_document_that_cannot_be_mapped_fails_a_standard_interchange() -> None:
    """RCV-12, RCV-21."""
    with pytest.raises(MapFailure, match=r"Document 2: to_invoice: a bad order"):
        run(mapped(ORDERS, Python(to_invoice, **ORDER)), FOUR)


def test_a_mapping_failure_fails_a_recoverable_interchange_before_the_first_batch() -> None:
    """RCV-17."""
    pipeline = mapped(lines(), Python(to_invoice, **ORDER))
    batches = pipeline.disassemble(Bytes(LINES), batch_rows=1)
    with pytest.raises(MapFailure, match="a bad order"):
        next(batches)


@pytest.mark.parametrize("count", [3, 30])
def test_a_long_recoverable_interchange_yields_no_batch_before_all_is_mapped(count: int) -> None:
    pipeline = mapped(lines(), Python(to_invoice, **ORDER))
    good = b'{"order": 1}\n' * count
    assert len(rows(run(pipeline, good, batch_rows=1))) == count
    with pytest.raises(MapFailure):
        next(pipeline.disassemble(Bytes(good + b'{"order": "bad"}'), batch_rows=1))


class Alone(components.Decoder):
    """Let documents that cannot be mapped be suspended alone."""

    def decode(self, message: Message) -> Message:
        return message.with_context(message.context.write(ALONE, True))


def test_with_the_property_only_the_original_document_is_suspended() -> None:
    pipeline = mapped(Receive(decode=[Alone()], disassemble=[lines()]), Python(to_invoice, **ORDER))
    batches = run(pipeline, LINES)
    assert [row["number"] for row in rows(batches)] == [1, 3]
    [bad] = batches[0].failures
    assert (bad.number, bad.body) == (2, b'{"order": "bad"}')
    assert "Document 2: to_invoice: a bad order" in str(bad.failure)


def test_the_property_changes_nothing_for_a_standard_interchange() -> None:
    pipeline = mapped(Receive(decode=[Alone()], disassemble=[ORDERS]), Python(to_invoice, **ORDER))
    with pytest.raises(MapFailure):
        run(pipeline, FOUR)


class Marked(components.Disassembler):
    """Let every second document be suspended alone if it cannot be mapped."""

    @property
    def promotes(self) -> tuple[Property, ...]:
        return (ALONE,)

    @property
    def recoverable(self) -> bool:
        return True

    def disassemble(self, message: Message) -> Any:
        for number, word in enumerate(message.data.split(), 1):
            yield Message.of(word, promoted={BTS.MessageType: "order", ALONE: number % 2 == 0})


@pytest.mark.parametrize(("content", "published"), [(b"1 bad 3", [1, 3]), (b"bad 2 3", None)])
def test_the_property_can_be_set_for_one_document(content: bytes, published: list[int] | None) -> None:
    pipeline = mapped(Receive(disassemble=[Marked()]), Python(to_invoice, **ORDER))
    if published is None:
        with pytest.raises(MapFailure):
            run(pipeline, content)
    else:
        assert [row["number"] for row in rows(run(pipeline, content))] == published


def test_a_map_that_never_returns_fails_its_document_and_the_next_one_is_mapped() -> None:
    pipeline = mapped(Receive(decode=[Alone()], disassemble=[lines()]), Python(for_ever, **ORDER, seconds=0.2))
    [batch] = run(pipeline, LINES)
    assert [row["number"] for row in rows([batch])] == [1, 3]
    assert "for_ever: It did not return within 0.2 seconds" in str(batch.failures[0].failure)


def test_a_map_cannot_end_the_process() -> None:
    with pytest.raises(MapFailure, match="ends_the_process"):
        run(mapped(ORDERS, Python(ends_the_process, **ORDER)), b"<orders><order/></orders>")


def test_one_thread_runs_the_calls_of_many_messages() -> None:
    pipeline = mapped(ORDERS, Python(in_which_thread, **ORDER))
    bodies = {row["body"] for _ in range(3) for row in rows(run(pipeline, b"<orders><order/><order/></orders>"))}
    assert len(bodies) == 1


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda message: b"<memo/>", "has the type 'memo'"),
        (lambda message: b"no XML", "not well-formed"),
        (lambda message: b"", "empty"),
        (lambda message: "text", "Encode it"),
        (lambda message: None, "bytes"),
    ],
)
def test_a_wrong_result_of_a_map_fails(make: Callable[[Message], Any], reason: str) -> None:
    class Answers(Map):
        def transform(self, message: Message) -> Any:
            return make(message)

    from postroom.maps.running import RunningMaps

    maps = RunningMaps([Answers(**ORDER, read=Xml())])
    [one] = maps.run([(maps.find("order"), Message.of(b"<order/>"))])  # type: ignore[list-item]
    assert isinstance(one, MapFailure)
    assert reason in str(one)


def test_a_map_that_cannot_be_loaded_fails_the_interchange(folder: Path) -> None:
    stored = PortMaps.pack([Xslt("order-to-invoice.xslt", **ORDER)], folder).model_dump(mode="json")
    stored["maps"][0]["name"] = "Gone"
    batches = MappedPipeline(ORDERS, load_maps(stored)).disassemble(Bytes(b"<orders/>"), context=Context())
    with pytest.raises(PipelineFailure, match="Gone cannot be loaded"):
        next(batches)


def test_maps_do_not_change_the_bad_document_limit() -> None:
    assert MappedPipeline(JsonLines(bad_documents=7), NO_MAPS).bad_documents == 7
    assert MappedPipeline(JsonLines(bad_documents=None), NO_MAPS).bad_documents is None
