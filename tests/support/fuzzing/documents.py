"""Fuzz targets for the formats of documents: JSON, XML, CSV and flat files."""

from __future__ import annotations

import csv
import io
import json
import re
from datetime import datetime
from decimal import Decimal
from typing import Any

from lxml import etree

from postroom.errors import PipelineFailure
from postroom.message import Bytes
from postroom.pipelines import Csv, Delimited, Field, FlatFile, Json, JsonLines, Positional, Xml, XmlReceive
from postroom.pipelines.definition import Format
from postroom.properties import Property
from postroom.schemas import PromotedField, Schema, Schemas, WrittenField
from tests.support.fuzzing.mutations import mutate_bytes, mutate_json, mutate_lines, mutate_xml
from tests.support.fuzzing.target import MessageLost, Target, choose, describe_failure

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)
Weight = Property("Orders.Weight", float)
Paid = Property("Orders.Paid", bool)
Sent = Property("Orders.Sent", datetime)
Sender = Property("Orders.Sender", str)

_PATHS = {Region: "region", Total: "totals.net", Priority: "priority", Weight: "weight", Paid: "paid", Sent: "sent"}
_ORDER = (
    b'{"region": "EU", "totals": {"net": 10.50, "gross": "12"}, "priority": 3, "weight": 1e3, "paid": true, '
    b'"sent": "2026-01-31T12:00:00.5+01:00", "lines": [{"id": "a\\u00e9\\n"}, null, -0]}'
)


def make_json_target() -> Target:
    document = Json(promote=_PATHS)
    lines = JsonLines(promote=_PATHS)
    split = Json(promote=_PATHS, split="batch.orders", recoverable=True)
    whole_split = Json(promote={Region: "region"}, split="$")

    def check(data: bytes) -> str:
        content = data.removeprefix(b"\xef\xbb\xbf")
        match choose(data, 4):
            case 0:
                return _run(document, data, expected=1)
            case 1:
                present = [line.removesuffix(b"\r") for line in content.split(b"\n")]
                return _run(lines, data, bodies=[line for line in present if line and not line.isspace()])
            case 2:
                return _run(split, data, expected=_count(_parse_json(content), "batch", "orders"))
            case _:
                return _run(whole_split, data, expected=_count(_parse_json(content)))

    words = b'{ } [ ] , : " \\ \\u \\ud800 \\udc00 true null NaN 1e400 -0 00 1_0 \xef\xbb\xbf \xff\xfe \0'.split(b" ")
    return Target(
        check=check,
        seeds=[
            _ORDER,
            b'{"batch": {"id": 1, "orders": [%s, {}, %s]}, "end": []}' % (_ORDER, _ORDER),
            b"[%s,\n%s , [], 1]" % (_ORDER, _ORDER),
            b"\xef\xbb\xbf%s\r\n\n%s\n" % (_ORDER, _ORDER),
            b"[[[[[[[[1]]]]]]]]",
        ],
        mutations=[mutate_json, mutate_json, mutate_bytes(words), mutate_lines],
    )


def _parse_json(content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return None


def _count(parsed: Any, *path: str) -> int | None:
    """Return the number of elements of the array at the path, or None if there is none."""
    for key in path:
        parsed = parsed.get(key) if isinstance(parsed, dict) else None
    return len(parsed) if isinstance(parsed, list) else None


_NAMESPACES = {"o": "urn:orders"}
_XML_ORDER = (
    b'<o:order xmlns:o="urn:orders" id="7"><o:region>EU &amp; US</o:region><o:total>10.50</o:total>'
    b"<o:sent>2026-01-31T12:00:00Z</o:sent><o:paid>true</o:paid><o:empty/><!-- a --><?b c?></o:order>"
)
_XML_PATHS = {
    Region: "/o:order/o:region", Total: "/o:order/o:total", Priority: "/o:order/@id", Paid: "/o:order/o:paid",
    Sent: "/o:order/o:sent/text()",
}  # fmt: skip


def make_xml_target() -> Target:
    path = "/batch/o:order"
    document = Xml(promote=_XML_PATHS, namespaces=_NAMESPACES)
    split = Xml(promote=_XML_PATHS, namespaces=_NAMESPACES, split=path)
    receive = XmlReceive(schemas=_make_schemas(), recoverable=True, allow_unrecognized=True)

    def check(data: bytes) -> str:
        root = _parse_xml(data)
        match choose(data, 3):
            case 0:
                return _run(document, data, expected=1)
            case 1:
                found: Any = [] if root is None else root.getroottree().xpath(path, namespaces=_NAMESPACES)
                return _run(split, data, expected=None if root is None else len(found))
            case _:
                return _run(receive, data, expected=_count_documents(root))

    words = [
        *(b"< > </ /> & ; ' \" <!-- --> <![CDATA[ ]]> <!DOCTYPE <?xml ?> xmlns= xmlns:o='' xml:space &#0; "
          b"&#x10FFFF; &lt; :".split(b" ")),
        b"<!DOCTYPE a [<!ENTITY x SYSTEM 'file:///etc/hostname'>]>", b"<?xml version='1.0' encoding='utf-7'?>",
        b"<?xml version='1.1'?>", b"\xff\xfe", b"\xfe\xff", b"\0",
    ]  # fmt: skip
    return Target(
        check=check,
        seeds=[
            b"<?xml version='1.0' encoding='utf-8'?>\n" + _XML_ORDER,
            b"<batch>%s\n%s</batch>" % (_XML_ORDER, _XML_ORDER),
            b"<batch xmlns:o='urn:orders'><o:order/> <o:order><o:region/></o:order></batch>",
            b"<envelope><sender>Acme</sender><body>%s<order><note/></order><envelope><body><order/></body></envelope>"
            b"</body></envelope>" % _XML_ORDER,
            _XML_ORDER.decode().encode("utf-16"),
        ],
        mutations=[mutate_xml, mutate_xml, mutate_bytes(words)],
    )


def _make_schemas() -> Schemas:
    def at(*names: str, namespace: str = "") -> str:
        return "".join(f"/*[local-name()='{name}' and namespace-uri()='{namespace}']" for name in names)

    def promoted(prop: Property, path: str, **more: Any) -> PromotedField:
        return PromotedField(key=prop.key, type=int(prop.value_type), path=path, **more)

    return Schemas(
        schemas=(
            Schema(
                message_type="envelope",
                envelope=True,
                body=at("envelope", "body"),
                promoted=(promoted(Sender, at("envelope", "sender")),),
            ),
            Schema(
                message_type="order",
                promoted=(promoted(Priority, at("order", "priority"), default="5"),),
                distinguished=(WrittenField(path=at("order", "note"), default="none"),),
            ),
            Schema(
                message_type="urn:orders#order",
                promoted=(promoted(Sent, at("order", "sent", namespace="urn:orders"), form="dateTime"),),
            ),
        )
    )


def _parse_xml(data: bytes) -> etree._Element | None:
    try:
        return etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    except (etree.XMLSyntaxError, ValueError):
        return None


def _count_documents(root: etree._Element | None) -> int | None:
    """Return how many documents the envelopes contain. A root that is not an envelope is one document."""
    if root is None:
        return None
    if root.tag != "envelope":
        return 1
    inner = [child for body in root.iterchildren("body") for child in body.iterchildren(tag=etree.Element)]
    return sum(_count_documents(child) or 0 for child in inner)


def make_csv_target() -> Target:
    columns = {Region: "region", Total: "total", Priority: "priority", Sent: "sent"}
    named = Csv(promote=columns)
    plain = Csv(delimiter=";", header=["id", "region", "total"], promote={Region: "region"}, encoding="cp1252")
    unquoted = Csv(header=False, quote=None)

    def check(data: bytes) -> str:
        pipeline = (named, plain, unquoted)[choose(data, 3)]
        if pipeline is named:
            return _run(named, data, has_header=True)
        return _run(pipeline, data, content=data)

    words = [*b', ; " "" \r \n \r\n \0 \xef\xbb\xbf \xff'.split(b" "), b'"a\nb"', b",,,", b'x"y', b"\n\n", b" "]
    return Target(
        check=check,
        seeds=[
            b'id,region,total,priority,sent\r\n1,EU,10.50,3,2026-01-31T12:00:00Z\r\n2,"a,""b""\nc",,,\r\n\r\n3,US,7,1,\r\n',
            b"1;EU;10\n2;\xe9;7\n\n3;US;1",
            b"\xef\xbb\xbfregion,total,priority,sent\nEU,1,2,\n",
            _write_rows(40),
        ],
        mutations=[mutate_lines, mutate_bytes(words), mutate_bytes(words)],
    )


def _write_rows(count: int) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerows(
        [["region", "total", "priority", "sent"], *(["a\nb", number, number, ""] for number in range(count))]
    )
    return text.getvalue().encode()


def make_flat_target() -> Target:
    orders = FlatFile(
        message_type="urn:orders#Order",
        record=Delimited(["number", "region", Field("total", Decimal)], delimiter=";"),
        header=Delimited(["sender", Field("sent", datetime, format="%Y%m%d%z")], delimiter="|", tag="HDR"),
        trailer=Positional([Field("records", int, width=5, pad="0", justify="right")], tag="TRL"),
        count="records",
        promote={Region: "region", Total: "total", Sender: "header.sender", Sent: "header.sent"},
    )
    fixed = FlatFile(
        message_type="Stock",
        record=Positional(
            [
                Field("item", width=6),
                Field("quantity", int, width=5, pad="0", justify="right"),
                Field("sold", bool, width=5),
            ],
            allow_early_termination=True,
        ),
        promote={Priority: "quantity"},
        encoding="cp1252",
        output="json",
    )
    lines = FlatFile(
        message_type="Order",
        record=Delimited(["id"], tag="ORD", escape="\\", quote=None),
        lines={"line": Delimited(["item", Field("count", int)], tag="LIN", escape="\\", quote=None)},
        end="~",
    )

    def check(data: bytes) -> str:
        pipeline = (orders, fixed, lines)[choose(data, 3)]
        return _run(pipeline, data, expected=_count_lines(data) if pipeline is fixed else None)

    words = [
        *b'; | , ~ " \\ \r \n \0 HDR TRL ORD LIN \xff \xef\xbb\xbf'.split(b" "),
        b"TRL00002\n",
        b"00000",
        b"\x0c",
        b" " * 20,
    ]
    return Target(
        check=check,
        seeds=[
            b'HDR|Acme|20260131+0000\n1;EU;10.50\n2;US;7\n3;"a\nb";\nTRL00003\n',
            b"nut   00120true \nbolt  00000false\r\n\nscrew \n",
            b"ORD,1~LIN,a,2~LIN,b\\,c,3~ORD,2~",
            b"HDR|Acme|20260131+0000\n" + b"".join(b"%d;EU;1\n" % n for n in range(30)) + b"TRL00030\n",
        ],
        mutations=[mutate_lines, mutate_bytes(words), mutate_bytes(words)],
    )


def _count_lines(data: bytes) -> int | None:
    """Return the number of lines that are not empty, or None if it depends on details of the encoding."""
    if b"\xef\xbb\xbf" in data:
        return None
    return len([line for line in data.split(b"\n") if line.strip(b"\r")])


def _run(
    pipeline: Format,
    data: bytes,
    *,
    expected: int | None = None,
    bodies: list[bytes] | None = None,
    content: bytes | None = None,
    has_header: bool = False,
) -> str:
    """Run a pipeline and check that each document is yielded or reported, once and in order.

    ``expected`` is the number of documents, ``bodies`` are their contents, and ``content`` is what they contain
    together, without line ends. Returns a description of the result."""
    name = type(pipeline).__name__
    rows: dict[int, bytes] = {}
    reasons: set[str] = set()
    try:
        for batch in pipeline.disassemble(Bytes(data), batch_rows=1 + len(data) % 7):
            batch.messages.validate(full=True)
            yielded = [(row["number"], row["body"]) for row in batch.messages.select(["number", "body"]).to_pylist()]
            yielded += [(bad.number, bad.body) for bad in batch.failures]
            reasons |= {describe_failure(bad.failure) for bad in batch.failures}
            for number, body in yielded:
                if number in rows:
                    raise MessageLost(f"{name}: document {number} was yielded twice")
                rows[number] = body
    except PipelineFailure as failure:
        return f"{name} {describe_failure(failure)}"
    found = [rows[number] for number in sorted(rows)]
    if sorted(rows) != list(range(1, len(rows) + 1)):
        raise MessageLost(f"{name}: the numbers of the documents are {sorted(rows)}")
    if expected is not None and len(found) != expected:
        raise MessageLost(f"{name}: {len(found)} documents instead of {expected}")
    if bodies is not None and found != bodies:
        raise MessageLost(f"{name}: the documents are {found[:3]} ... instead of {bodies[:3]} ...")
    if has_header and found and all(body.startswith(found[0].partition(b"\n")[0]) for body in found):
        content, found = data, _share_header(found, data)
    if content is not None and _join_lines(b"".join(found)) != _join_lines(content):
        raise MessageLost(f"{name}: bytes of the interchange are in no document")
    return f"{name} {min(len(found), 3)} documents {sorted(reasons)}"


def _share_header(found: list[bytes], data: bytes) -> list[bytes]:
    """Return the documents with their header once, in front. A quoted name in the header may have line ends, so the
    header ends at the first line end after which nothing is missing."""
    for end in re.finditer(b"\n", found[0]):
        header = found[0][: end.end()]
        shared = [header, *(body.removeprefix(header) for body in found)]
        if _join_lines(b"".join(shared)) == _join_lines(data):
            return shared
    return found


def _join_lines(content: bytes) -> bytes:
    """Return the content without line ends and byte order marks, which need not be in a document."""
    return content.translate(None, b"\r\n").replace(b"\xef\xbb\xbf", b"")
