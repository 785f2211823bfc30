"""The assemblers for CSV and flat files: the inverse of ``pipelines.Csv`` and ``pipelines.FlatFile`` (CTX-26)."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import PipelineFailure
from postroom.message import Message
from postroom.pipelines import Csv, Delimited, Field, FlatFile, Positional, Send, components
from postroom.pipelines.send.definition import load_send_pipeline
from postroom.properties import Property
from tests.support.round_trip import receive, receive_messages, send

Region = Property("Orders.Region", str)
Number = Property("Orders.Number", int)
Sender = Property("Orders.Sender", str)
Written = Property("Orders.Written", datetime)

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)


def assemble(assembler: components.Assembler, document: bytes, promoted: dict[Property, Any] | None = None) -> Message:
    pipeline = Send(assemble=assembler)
    message = Message.of(document, promoted=promoted or {})
    sent = send(pipeline, message)
    assert send(load_send_pipeline(pipeline.model_dump(mode="json")), message).data == sent.data
    return sent


# -- CSV -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("delimiter", "end"), [(",", "\r\n"), (";", "\n")])
@given(texts=st.tuples(TEXT, TEXT, TEXT), demoted=TEXT)
def test_a_row_is_written_and_read_with_the_same_values(
    delimiter: str, end: Any, texts: tuple[str, str, str], demoted: str
) -> None:
    columns = ["a", "a b", "régión"]
    assembler = components.CsvAssembler(columns, delimiter=delimiter, end=end, demote={Region: "régión"})
    sent = assemble(assembler, json.dumps(dict(zip(columns, texts, strict=True))).encode(), {Region: demoted})
    first = Property("Test.A", str)
    [received] = receive_messages(Csv(promote={Region: "régión", first: "a"}, delimiter=delimiter), sent)
    assert (received.context[first], received.context[Region]) == (texts[0], demoted)
    rows = list(csv.reader(io.StringIO(sent.data.decode(), newline=""), delimiter=delimiter))
    assert rows == [columns, [texts[0], texts[1], demoted]]


@given(texts=st.lists(TEXT.filter(bool), min_size=2, max_size=4))
def test_a_received_row_is_sent_again_byte_for_byte(texts: list[str]) -> None:
    columns = [f"c{number}" for number in range(len(texts))]
    document = json.dumps(dict(zip(columns, texts, strict=True))).encode()
    sent = assemble(components.CsvAssembler(columns, header=False, end="\n"), document)
    [body] = receive(Csv(header=columns), sent)
    assert body == sent.data


def test_objects_of_an_array_become_rows_and_numbers_keep_their_digits() -> None:
    document = b'[{"n": 1.50, "x": true, "more": [1]}, {"n": null, "x": ""}, {"x": "a,b"}]'
    sent = assemble(components.CsvAssembler(["n", "x"]), document)
    assert sent.data == b'n,x\r\n1.50,true\r\n,""\r\n,"a,b"\r\n'
    assert sent.body is not None
    assert (sent.body.content_type, sent.body.charset) == ("text/csv", None)


def test_the_elements_of_an_xml_document_become_fields() -> None:
    document = "<order><id>7</id><region>EU</region><note>Größe</note></order>".encode()
    sent = assemble(components.CsvAssembler(["region", "note", "id"], header=False, encoding="cp1252"), document)
    assert sent.data == "EU,Größe,7\r\n".encode("cp1252")
    assert sent.body is not None
    assert sent.body.charset == "cp1252"


@pytest.mark.parametrize(
    ("settings", "document", "reason"),
    [
        ({"quote": None}, b'{"a": "x,y", "b": 1}', "cannot be written without a quote"),
        ({"encoding": "ascii"}, '{"a": "é"}'.encode(), r"the character U\+00E9, which ascii does not have"),
        ({}, b'{"a": {}}', "'a' is not a valid field"),
        ({}, b"id;name", "not well-formed XML"),
        ({}, b"[1]", "not"),
    ],
)
def test_a_document_that_is_no_row_is_a_failure(settings: dict[str, Any], document: bytes, reason: str) -> None:
    with pytest.raises(PipelineFailure, match=reason):
        assemble(components.CsvAssembler(["a", "b"], **settings), document)


def test_wrong_settings_of_csv_are_problems() -> None:
    assert components.CsvAssembler(["a", "a"], delimiter=";;", demote={Region: "b"}).problems() == [
        "The delimiter ';;' has 2 characters; it must be one.",
        "Two columns are named 'a'.",
        "Orders.Region is demoted into 'b', which is not among the columns.",
    ]


# -- flat files ------------------------------------------------------------------------------------------------------

DELIMITED: dict[str, Any] = {
    "record": Delimited(["id", Field("total", Decimal), Field("placed", datetime)], delimiter=";", tag="ORD"),
    "lines": {"line": Delimited(["item", Field("count", int)], delimiter=";", tag="LIN")},
    "header": Delimited(["sender", Field("number", int)], delimiter="|"),
    "trailer": Delimited([Field("records", int), "checksum"], tag="END"),
    "count": "records",
}
ESCAPED: dict[str, Any] = {
    "record": Delimited(
        ["id", Field("total", Decimal), Field("placed", datetime)], delimiter=";", tag="ORD", quote=None, escape="\\"
    ),
    "lines": {
        "line": Delimited(["item", Field("count", int)], delimiter=";", tag="LIN", quote=None, escape="\\"),
    },
    "header": Delimited(["sender", Field("number", int)], delimiter="||", escape="?"),
    "trailer": DELIMITED["trailer"],
    "count": "records",
}
POSITIONAL: dict[str, Any] = {
    "record": Positional(
        [
            Field("id", width=10),
            Field("total", Decimal, width=14, pad="0", justify="right"),
            Field("placed", datetime, width=26, format="%Y-%m-%dT%H:%M:%S%z"),
        ],
        tag="ORD",
    ),
    "lines": {
        "line": Positional([Field("item", width=12, pad="*", justify="right"), Field("count", int, width=6)], tag="LIN")
    },
    "header": Positional([Field("sender", width=20), Field("number", int, width=20, pad="0", justify="right")]),
    "trailer": Positional(
        [Field("records", int, width=5, pad="0", justify="right"), Field("checksum", width=4)], tag="END"
    ),
    "count": "records",
}
HEADER_PATHS: dict[Property, str] = {Sender: "header.sender", Number: "header.number"}

NO_PADDING = st.text(
    st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp", "Zs"], exclude_characters="*"), max_size=10
)


def documents(text: st.SearchStrategy[str]) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries(
        {
            "id": text,
            "total": st.none() | st.decimals(-10000, 10000, places=2),
            "placed": st.none() | st.datetimes(datetime(1970, 1, 2), datetime(2100, 1, 1)),  # noqa: DTZ001 - as text
            "line": st.lists(
                st.fixed_dictionaries({"item": text, "count": st.none() | st.integers(0, 9999)}), max_size=3
            ),
        }
    )


def to_json(document: dict[str, Any]) -> bytes:
    """Return a document in the form that FlatFile writes."""
    total, placed = document["total"], document["placed"]
    moment = None if placed is None else placed.replace(microsecond=0, tzinfo=UTC).isoformat().replace("+00:00", "Z")
    members = [
        f'"id":{json.dumps(document["id"], ensure_ascii=False)}',
        f'"total":{"null" if total is None else f"{total:f}"}',
        f'"placed":{json.dumps(moment)}',
        f'"line":{json.dumps(document["line"], ensure_ascii=False, separators=(",", ":"))}',
    ]
    return f"{{{','.join(members)}}}".encode()


@pytest.mark.parametrize(
    ("layouts", "text", "end"),
    [
        (DELIMITED, TEXT, "\n"),
        (DELIMITED, TEXT, "\r\n"),
        (DELIMITED, NO_PADDING, "~"),
        (ESCAPED, NO_PADDING, "\n"),
        (POSITIONAL, NO_PADDING, "\n"),
    ],
)
@given(data=st.data(), sender=NO_PADDING, number=st.integers(0, 2**60))
def test_a_flat_file_is_written_and_read_as_the_same_document(
    layouts: dict[str, Any], text: st.SearchStrategy[str], end: str, data: st.DataObject, sender: str, number: int
) -> None:
    document = data.draw(documents(text))
    body = to_json(document)
    assembler = components.FlatFileAssembler(**layouts, demote=HEADER_PATHS, values={"trailer.checksum": "ok"}, end=end)
    sent = assemble(assembler, body, {Sender: sender, Number: number})
    flat = FlatFile(message_type="order", **layouts, output="json", promote=HEADER_PATHS, end=end)
    [received] = receive_messages(flat, sent)
    assert json.loads(received.data, parse_float=Decimal) == json.loads(body, parse_float=Decimal)
    assert (received.context.get(Sender), received.context[Number]) == (sender, number)
    xml = FlatFile(message_type="urn:o#order", **layouts, promote=HEADER_PATHS, end=end)
    try:
        [as_xml] = receive_messages(xml, sent)
    except AssertionError:
        return  # XML cannot represent a character of the text
    again = assemble(assembler, as_xml.data, {Sender: sender, Number: number})
    assert receive(xml, again) == [as_xml.data]


def test_header_record_lines_and_trailer_are_written_in_order() -> None:
    document = b"<order><id>A;1</id><total>1.50</total><line><item>x</item><count>2</count></line></order>"
    assembler = components.FlatFileAssembler(
        **DELIMITED, demote=HEADER_PATHS, values={"trailer.checksum": "", "header.sender": "nobody"}, end="\r\n"
    )
    sent = assemble(assembler, document, {Number: 9})
    assert sent.data == b'nobody|9\r\nORD;"A;1";1.50;\r\nLIN;x;2\r\nEND,2,\r\n'
    assert sent.body is not None
    assert sent.body.content_type == "text/plain"


def test_a_demoted_date_is_written_in_the_format_of_its_field() -> None:
    layout = Delimited([Field("day", datetime, format="%Y%m%d%z"), "n"])
    assembler = components.FlatFileAssembler(record=layout, demote={Written: "day"})
    sent = assemble(assembler, b'{"n": 1}', {Written: datetime(2026, 1, 31, 12, tzinfo=UTC)})
    assert sent.data.startswith(datetime(2026, 1, 31, 12, tzinfo=UTC).astimezone().strftime("%Y%m%d%z").encode())


@pytest.mark.parametrize(
    ("layout", "document", "reason"),
    [
        (Positional([Field("a", width=2)]), b'{"a": "abc"}', "has 3 characters, and the field has 2"),
        (Positional([Field("a", width=4)]), b'{"a": "ab "}', "starts or ends with padding"),
        (Positional([Field("a", int, width=4, pad="0")]), b'{"a": 10}', "starts or ends with padding"),
        (Positional([Field("a", width=4)]), b'{"a": "a\\nb"}', "contains the end of a record"),
        (Delimited([Field("a", int), "b"]), b'{"a": "x"}', "does not fit the type of the field"),
        (Delimited([Field("a", required=True), "b"]), b"{}", "required, and it is empty"),
        (Delimited(["a", "b"], quote=None), b'{"a": "x,y"}', "another record"),
        (Delimited(["a", "b"], quote=None), b'{"a": "x\\ny"}', "cannot be written without a quote"),
        (Delimited(["a"], quote=None), b"{}", "readers ignore empty lines"),
        (Delimited(["a", "b"]), b'{"a": [1]}', "'a' is not a valid field"),
        (Delimited(["a", "b"]), b"<r><a/><a/></r>", "It occurs more than once"),
    ],
)
def test_a_document_that_would_be_read_differently_is_a_failure(layout: Any, document: bytes, reason: str) -> None:
    with pytest.raises(PipelineFailure, match=reason):
        assemble(components.FlatFileAssembler(record=layout), document)


def test_wrong_settings_of_flat_files_are_problems() -> None:
    assembler = components.FlatFileAssembler(
        record=Delimited(["a", "a"]),
        trailer=Delimited([Field("n", int)]),
        count="n",
        demote={Region: "header.x", Number: "trailer.n"},
        values={"b": ""},
    )
    assert assembler.problems() == [
        "record: Two fields are named 'a'.",
        "Orders.Region is demoted into 'header.x', which is not a field.",
        "values has 'b', which is not a field.",
        "'trailer.n' is the count, which has no other value.",
    ]
