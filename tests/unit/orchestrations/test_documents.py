"""ORC-56: orchestrations apply maps, build messages of schemas, and run pipelines."""

from __future__ import annotations

import gzip
from datetime import timedelta
from itertools import count
from pathlib import Path
from textwrap import dedent

import pytest

from postroom import Application, Message, Property, maps, orchestrations, pipelines, testing
from postroom.application.loading.load import load_orchestrations
from postroom.errors import MapFailure, PipelineFailure
from postroom.message import Bytes
from postroom.orchestrations import JournalLimits, JournalMismatch
from postroom.pipelines import components
from postroom.properties import DistinguishedField
from postroom.system_properties import BTS
from tests.support.offers import Kind, bodies, message
from tests.unit.application.test_schemas import ORDER, PROPERTIES

Total = Property("Tests.Total", int)
Region = Property("Region", str, namespace="urn:properties")

numbers = count(1)


def number(order: Message) -> bytes:
    """A map whose result differs each time."""
    return b'{"total": %d}' % next(numbers)


def refuse(order: Message) -> bytes:
    raise ValueError(f"the order {order.data.decode()!r} has no total")


invoice = pipelines.Json(promote={Total: "total"}, message_type="invoice")
lines = pipelines.JsonLines(promote={Kind: "kind"}, message_type="line")
to_invoice = maps.Python(number, source="order", target="invoice", read=invoice)
to_nothing = maps.Python(refuse, source="order", target="invoice")
zip_it = pipelines.Send(encode=[components.GzipEncoder()])
drop_it = pipelines.Send(pre_assemble=[lambda one: None])

app = Application("tests")
app.property(Kind)


@app.orchestration(activate=Kind == "order", maps=[to_invoice, to_nothing])
async def map_orders(order: Message) -> None:
    first = await orchestrations.transform(order, to_invoice)
    await orchestrations.delay(60)
    await orchestrations.send(first)
    try:
        await orchestrations.transform(order, to_nothing)
    except MapFailure as failure:
        await orchestrations.send(Message.of(str(failure).encode()))


@app.orchestration(activate=Kind == "order", maps=[to_nothing])
async def fail_to_map(order: Message) -> None:
    await orchestrations.transform(order, to_nothing)


@app.orchestration(activate=Kind == "order")
async def use_undeclared(order: Message) -> None:
    await orchestrations.transform(order, maps.Python(number, source="order", target="invoice"))


@app.orchestration(activate=Kind == "order", pipelines=[lines, invoice])
async def split(order: Message) -> None:
    try:
        for document in await orchestrations.execute_receive_pipeline(order, lines):
            await orchestrations.send(document)
    except PipelineFailure as failure:
        await orchestrations.send(Message.of(failure.what.encode()))


@app.orchestration(activate=Kind == "order", pipelines=[invoice, lines])
async def build(order: Message) -> None:
    for body in (b'{"total": 7}', b'{"total": "x"}'):
        try:
            await orchestrations.send(await orchestrations.build_message(body, invoice))
        except PipelineFailure as failure:
            await orchestrations.send(Message.of(failure.what.encode()))
    with pytest.raises(PipelineFailure, match="more than one document"):
        await orchestrations.build_message(b"{}\n{}\n", lines)
    with pytest.raises(PipelineFailure, match="finds no document"):
        await orchestrations.build_message(b"", lines)


@app.orchestration(activate=Kind == "order", pipelines=[zip_it, drop_it])
async def assemble(order: Message) -> None:
    zipped = await orchestrations.execute_send_pipeline(order, zip_it)
    assert zipped is not None
    await orchestrations.send(Message.of(zipped.data, content_type=zipped.parts[0].content_type))
    assert await orchestrations.execute_send_pipeline(order, drop_it) is None


def test_the_result_of_a_map_is_stored_and_a_replay_does_not_run_it_again(crashes: bool) -> None:
    before = next(numbers)
    run = testing.start(map_orders, message("order", b"a"), crashes=crashes)
    run.advance(timedelta(minutes=1))
    assert run.error is None
    [mapped, failed] = run.sent
    assert next(numbers) == before + 2
    assert mapped.message.data == b'{"total": %d}' % (before + 1)
    assert dict(mapped.message.context.promoted) == {BTS.MessageType.key: "invoice", Total.key: before + 1}
    assert mapped.message.context[Kind] == "order"
    assert failed.message.data.startswith(b"refuse: the order 'a' has no total\nValueError at ")


def test_a_failure_that_is_not_caught_suspends_the_instance_with_its_reason(crashes: bool) -> None:
    run = testing.start(fail_to_map, message("order", b"a"), crashes=crashes)
    assert "postroom.errors.MapFailure: refuse: the order 'a' has no total" in str(run.error)


def test_a_message_of_another_type_is_not_mapped() -> None:
    order = message("order")
    memo = Message(context=order.context.promote(BTS.MessageType, "memo"), parts=order.parts)
    run = testing.start(fail_to_map, memo)
    assert "refuse: the message has the type 'memo'.\nThe source of the map is 'order'." in str(run.error)


def test_a_map_that_is_not_declared_is_refused() -> None:
    run = testing.start(use_undeclared, message("order"))
    assert "The orchestration 'use_undeclared' does not declare number" in str(run.error)
    assert "@app.orchestration(..., maps=[...])" in str(run.error)


def test_a_receive_pipeline_returns_the_documents_with_what_they_promote(crashes: bool) -> None:
    run = testing.start(split, message("order", b'{"kind":"a"}\n{"kind":"b"}\n'), crashes=crashes)
    assert bodies(run) == [b'{"kind":"a"}', b'{"kind":"b"}']
    promoted = [dict(sent.message.context.promoted) for sent in run.sent]
    assert promoted == [{BTS.MessageType.key: "line", Kind.key: kind} for kind in ("a", "b")]
    assert len({sent.message.message_id for sent in run.sent}) == 2


def test_a_bad_document_raises_the_reason_with_which_it_would_be_suspended(crashes: bool) -> None:
    interchange = b'{"kind":"a"}\n{"kind":}\n'
    run = testing.start(split, message("order", interchange), crashes=crashes)
    [batch] = lines.disassemble(Bytes(interchange))
    assert bodies(run) == [batch.failures[0].failure.what.encode()]


def test_a_message_is_built_as_a_pipeline_receives_it(crashes: bool) -> None:
    run = testing.start(build, message("order"), crashes=crashes)
    assert run.error is None
    [built, failed] = run.sent
    assert dict(built.message.context.promoted) == {BTS.MessageType.key: "invoice", Total.key: 7}
    assert built.message.parts[0].content_type == "application/json"
    with pytest.raises(PipelineFailure) as raised:
        list(invoice.disassemble(Bytes(b'{"total": "x"}')))
    assert failed.message.data == raised.value.what.encode()


def test_a_send_pipeline_returns_the_assembled_message(crashes: bool) -> None:
    run = testing.start(assemble, message("order", b"a"), crashes=crashes)
    assert run.error is None
    [sent] = run.sent
    assert gzip.decompress(sent.message.data) == b"a"
    assert sent.message.parts[0].content_type == "application/gzip"


def test_a_result_that_is_too_large_for_the_journal_is_a_failure() -> None:
    @app.orchestration(activate=Kind == "order", pipelines=[lines], journal_limits=JournalLimits(size=1_000))
    async def read_large(order: Message) -> None:
        await orchestrations.execute_receive_pipeline(order, lines)

    run = testing.start(read_large, message("order", b'{"text": "%b"}\n' % (b"long" * 200)))
    assert "PipelineFailure: receive pipeline JsonLines: the result has more than 750 bytes." in str(run.error)


def test_a_replay_with_another_message_does_not_get_the_result() -> None:
    @app.orchestration(activate=Kind == "order", name="split", pipelines=[lines])
    async def split_another(order: Message) -> None:
        await orchestrations.execute_receive_pipeline(Message.of(order.data), lines)

    journal = testing.start(split, message("order", b"{}\n")).save_journal()
    testing.replay(split, journal)
    with pytest.raises(JournalMismatch, match="with other arguments"):
        testing.replay(split_another, journal)


def test_a_message_of_a_schema_promotes_and_distinguishes_as_a_received_one(tmp_path: Path) -> None:
    """The schema, the stylesheet and the code are files of the application."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "Properties.xsd").write_text(PROPERTIES)
    (tmp_path / "schemas" / "Order.xsd").write_text(ORDER)
    (tmp_path / "memo-to-order.xslt").write_text(
        '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform"><xsl:template match="/memo">'
        '<order><region><xsl:value-of select="."/></region></order></xsl:template></xsl:stylesheet>'
    )
    (tmp_path / "app.py").write_text(
        dedent("""
        from postroom import Application, Message, maps, orchestrations, pipelines
        app = Application("shop")
        order_xml = pipelines.XmlReceive(schemas=app.schemas("schemas"))
        to_order = maps.Xslt("memo-to-order.xslt", source="memo", target="order", read=order_xml)

        @app.orchestration(maps=[to_order], pipelines=[order_xml])
        async def order_twice(memo: Message) -> None:
            order = await orchestrations.build_message(b"<order><region>EU</region></order>", order_xml)
            await orchestrations.send(order)
            await orchestrations.send(await orchestrations.transform(memo, to_order))
        """)
    )
    [orchestration] = load_orchestrations(tmp_path / "app.py").values()
    run = testing.start(orchestration, Message.of(b"<memo>US</memo>"))
    assert run.error is None
    assert [sent.message.context.promoted[Region.key] for sent in run.sent] == ["EU", "US"]
    assert [sent.message.context.promoted[BTS.MessageType.key] for sent in run.sent] == ["order", "order"]
    field = DistinguishedField("/*[local-name()='order']/*[local-name()='region']")
    assert [sent.message.context.written.get(field.key) for sent in run.sent] == ["EU", "US"]
