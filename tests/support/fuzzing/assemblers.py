"""A fuzz target for the assemblers: what they accept is read again with the values that were demoted."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal

from postroom.errors import PipelineFailure
from postroom.message import Message
from postroom.pipelines import Csv, Delimited, Field, FlatFile, Json, Positional, ReceivePipeline, Xml, components
from postroom.properties import Property
from tests.support.fuzzing.mutations import mutate_bytes, mutate_json, mutate_xml
from tests.support.fuzzing.target import MessageLost, Target, choose

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
_VALUES = {Region: 'E"U,;|', Total: Decimal("10.50")}

_COLUMNS = ["id", "region", "total"]
_DELIMITED = Delimited(["id", "region", Field("total", Decimal)], delimiter=";", tag="ORD")
_LINES = {"line": Delimited(["item", Field("count", int)], delimiter=";", tag="LIN")}
_POSITIONAL = Positional([Field("id", width=8), Field("region", width=8), Field("total", Decimal, width=8, pad="0")])
_FIELDS = {Region: "region", Total: "total"}
_XPATHS = {Region: "/order/region", Total: "/order/@total"}


def make_assembler_target() -> Target:
    cases: Sequence[tuple[components.Assembler, ReceivePipeline]] = [
        (
            components.JsonAssembler(demote=_FIELDS, envelope=components.JsonEnvelope("a.orders")),
            Json(promote=_FIELDS, split="a.orders"),
        ),
        (
            components.XmlAssembler(
                demote=_XPATHS, envelope=components.XmlEnvelope("<a><b/></a>", body="/a/b"), encoding="utf-16"
            ),
            Xml(promote=_XPATHS, split="/a/b/*"),
        ),
        (components.CsvAssembler(_COLUMNS, demote=_FIELDS), Csv(promote=_FIELDS)),
        (
            components.FlatFileAssembler(record=_DELIMITED, lines=_LINES, demote=_FIELDS),
            FlatFile(message_type="order", record=_DELIMITED, lines=_LINES, promote=_FIELDS, output="json"),
        ),
        (
            components.FlatFileAssembler(record=_POSITIONAL, demote={Region: "region"}),
            FlatFile(message_type="order", record=_POSITIONAL, promote={Region: "region"}, output="json"),
        ),
    ]

    def check(data: bytes) -> str:
        assembler, pipeline = cases[choose(data, len(cases))]
        assembled = assembler.assemble(Message.of(data, promoted=_VALUES))
        assert isinstance(assembled, Message)
        assert assembled.body is not None
        try:
            rows = [row for batch in pipeline.disassemble(assembled.body.body) for row in batch.messages.to_pylist()]
        except PipelineFailure as failure:
            raise MessageLost(f"{assembler.name} wrote what cannot be read: {failure}") from failure
        if not rows and not isinstance(assembler, components.CsvAssembler):
            raise MessageLost(f"{assembler.name} wrote a document that contains no message.")
        for row in rows:
            for prop in pipeline.promotes:
                if row[prop.key] != _VALUES[prop]:
                    raise MessageLost(f"{assembler.name} wrote another value of {prop.dotted_name}.")
        return f"{assembler.name} {min(len(rows), 3)}"

    words = b'{ } [ ] , : " \\ \\u \\ud800 null 1e400 < > </ /> & ; | ORD LIN \r \n \0 \xef\xbb\xbf \xff\xfe'.split(
        b" "
    )
    return Target(
        check=check,
        seeds=[
            b'{"id": "a;b", "region": null, "total": 1.50, "line": [{"item": "x", "count": 2}]}',
            b'[{"id": 1}, {"region": "x"}]',
            b"<order total='1'><id>a&amp;b</id><region/><line><item>x</item><count>2</count></line></order>",
        ],
        mutations=[mutate_json, mutate_xml, mutate_bytes(words)],
    )
