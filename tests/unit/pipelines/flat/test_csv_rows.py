from __future__ import annotations

import csv
import io
import tracemalloc
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE, Bytes, FileSlice
from postroom.pipelines import Csv, Delimited, FlatFile
from postroom.pipelines.documents.node_limit import MAX_NODES
from postroom.pipelines.flat.csv_reader import MAX_QUOTED_SPAN
from postroom.properties import Property
from tests.unit.pipelines.conftest import Receive, Received

Region = Property("Orders.Region", str)
Priority = Property("Orders.Priority", int)
Total = Property("Orders.Total", Decimal)
Due = Property("Orders.Due", datetime)

ORDERS = Csv(promote={Region: "region", Total: "total"}, message_type="order")
HEADER = b"id,region,total\n"


def test_each_row_comes_with_the_header(receive: Receive) -> None:
    received = receive(ORDERS, HEADER + b"1,EU,10.10\n2,US,\n3,,7\n")
    assert received.bodies == [HEADER + b"1,EU,10.10\n", HEADER + b"2,US,\n", HEADER + b"3,,7\n"]
    assert received.numbers == [1, 2, 3]
    assert received.column("message_type") == ["order"] * 3
    assert received.column(Region.key) == ["EU", "US", None]
    assert received.column(Total.key) == [Decimal("10.10"), None, Decimal(7)]


def test_a_message_is_an_interchange_of_the_same_format(receive: Receive) -> None:
    received = receive(ORDERS, HEADER + b'1,"E""U",1\n2,"U\nS",2')
    for row in received.rows:
        (again,) = receive(ORDERS, row["body"]).rows
        assert again == {**row, "number": 1}


def test_column_names_come_from_the_definition(receive: Receive) -> None:
    pipeline = Csv(promote={Region: "region"}, header=["id", "region"])
    received = receive(pipeline, b"1,EU\r\n2,US")
    assert received.bodies == [b"1,EU\r\n", b"2,US"]
    assert received.column(Region.key) == ["EU", "US"]


def test_columns_without_names_are_passed_on(receive: Receive) -> None:
    received = receive(Csv(header=False), b'1,EU\n"2"\n3,,\n')
    assert received.bodies == [b"1,EU\n", b'"2"\n', b"3,,\n"]


@pytest.mark.parametrize(
    ("interchange", "bodies"),
    [
        (b"region,total\r\nEU,1\r\nUS,2\r\n", [b"region,total\r\nEU,1\r\n", b"region,total\r\nUS,2\r\n"]),
        (b"region,total\nEU,1\nUS,2", [b"region,total\nEU,1\n", b"region,total\nUS,2"]),
        (b"\xef\xbb\xbfregion,total\nEU,1\nUS,2\n", [b"region,total\nEU,1\n", b"region,total\nUS,2\n"]),
        (b"\n\r\nregion,total\n\nEU,1\n\r\nUS,2\n\n", [b"region,total\nEU,1\n", b"region,total\nUS,2\n"]),
        (b'"region","total"\nEU,1\n"US","2"\n', [b'"region","total"\nEU,1\n', b'"region","total"\n"US","2"\n']),
    ],
    ids=["CR LF", "no newline at the end", "byte order mark", "blank lines", "quotes"],
)
def test_line_ends_marks_and_blank_lines(receive: Receive, interchange: bytes, bodies: list[bytes]) -> None:
    received = receive(ORDERS, interchange)
    assert received.bodies == bodies
    assert received.column(Region.key) == ["EU", "US"]
    assert received.column(Total.key) == [1, 2]


@pytest.mark.parametrize("interchange", [b"", b"\n\n", b"\xef\xbb\xbf", HEADER, HEADER.strip()])
def test_an_interchange_without_rows_is_consumed(receive: Receive, interchange: bytes) -> None:
    received = receive(ORDERS, interchange)
    assert (received.rows, received.failures) == ([], [])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (b"EU", "EU"),
        (b" EU ", " EU "),
        (b'"EU"', "EU"),
        (b'"E,U"', "E,U"),
        (b'"E""U"', 'E"U'),
        (b'""""', '"'),
        (b'"E\nU"', "E\nU"),
        (b'"E\r\n\r\nU"', "E\r\n\r\nU"),
        (b'"\n"', "\n"),
        (b'""', ""),
        (b"", None),
        ("É".encode(), "É"),
    ],
)
def test_fields_are_read_in_canonical_form(receive: Receive, field: bytes, value: str | None) -> None:
    rows = [b"1,%s,5\r\n" % field, b"2,US,6\r\n"]
    received = receive(ORDERS, HEADER + b"".join(rows))
    assert received.bodies == [HEADER + row for row in rows]
    assert received.column(Region.key) == [value, "US"]


def test_the_last_field_may_be_empty_or_quoted(receive: Receive) -> None:
    received = receive(Csv(promote={Region: "b"}), b'a,b\r\n1,""\r\n2,\r\n3,"x"\r\n,\r\n')
    assert received.column(Region.key) == ["", None, "x", None]


def test_other_delimiters_and_quotes_are_supported(receive: Receive) -> None:
    pipeline = Csv(promote={Region: "region"}, delimiter="|", quote="'")
    received = receive(pipeline, b"id|region\n1|'E|U'\n2|\"US\n3|^]-\\\n")
    assert received.column(Region.key) == ["E|U", '"US', "^]-\\"]
    for special in "^]-\\.*":
        received = receive(Csv(promote={Region: "b"}, delimiter=special), b'a%sb\n1%s"x"\n' % ((special.encode(),) * 2))
        assert received.column(Region.key) == ["x"]


def test_quotes_have_no_meaning_without_a_quote_character(receive: Receive) -> None:
    received = receive(Csv(promote={Region: "b"}, quote=None), b'a,b\n1,5" pipe\n2,"x\n3,\n')
    assert received.column(Region.key) == ['5" pipe', '"x', None]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "shift_jis", "utf-8-sig"])
def test_other_encodings_are_decoded(receive: Receive, encoding: str) -> None:
    text = "表示" if encoding == "shift_jis" else "Zürich"
    interchange = f"id,region\n1,{text}\n".encode(encoding)
    received = receive(Csv(promote={Region: "region"}, encoding=encoding), interchange)
    assert received.column(Region.key) == [text]
    assert received.bodies == [interchange.removeprefix(b"\xef\xbb\xbf")]


@pytest.mark.parametrize(
    ("prop", "field", "value"),
    [
        (Priority, b" 7 ", 7),
        (Priority, b" ", None),
        (Priority, b'""', None),
        (Total, b"10.10", Decimal("10.10")),
        (Due, b"2026-01-31T12:00:00+02:00", datetime(2026, 1, 31, 10, tzinfo=UTC)),
    ],
)
def test_values_are_promoted_by_type(receive: Receive, prop: Property, field: bytes, value: object) -> None:
    received = receive(Csv(promote={prop: "b"}), b"a,b\nx,%s\n" % field)
    assert received.column(prop.key) == [value]


def lines_of(received: Received) -> list[str]:
    return [reason.splitlines()[0] for reason in received.reasons]


def test_a_bad_row_is_suspended_and_the_others_are_published(receive: Receive) -> None:
    rows = [
        b"1,EU,1\n",
        b"2,EU\n",
        b"3,EU,1,2\n",
        b"4,EU,many\n",
        b"5,\xff,1\n",
        b'6,5" pipe,1\n',
        b'7,"EU"x,1\n',
        b'8, "EU",1\n',
        b"9,%s,1\n" % (b"x" * 257),
        b"10,EU,1e400\n",
        b"11,E\rU,1\n",
        b'12,"E\nU\xff",1\n',
        b"13,US,1\n",
    ]
    received = receive(ORDERS, HEADER + b"".join(rows))
    assert received.numbers == [1, 13]
    assert [bad.number for bad in received.failures] == list(range(2, 13))
    assert [bad.body for bad in received.failures] == [HEADER + row for row in rows[1:-1]]
    assert lines_of(received) == [
        "Line 3: the row has 2 fields, not 3.",
        "Line 4: the row has 4 fields, not 3.",
        "Line 5: Orders.Total cannot be promoted from 'total'.",
        "Line 6: byte 3 is not utf-8.",
        "Line 7: a quote is at a position where it is not allowed.",
        "Line 8: a quote is at a position where it is not allowed.",
        "Line 9: a quote is at a position where it is not allowed.",
        "Line 10: Orders.Region cannot be promoted from 'region'.",
        "Line 11: Orders.Total cannot be promoted from 'total'.",
        "Line 12: there is a carriage return inside the row.",
        "Line 14: byte 2 is not utf-8.",
    ]


def test_an_unclosed_quote_fails_one_line(receive: Receive) -> None:
    rows = [b'1,"EU,1\n', *(b"%d,US,1\n" % number for number in range(2, 50)), b'50,"U\nS",1\n', b'51,"US,1\n']
    received = receive(ORDERS, HEADER + b"".join(rows))
    assert received.numbers == list(range(2, 51))
    assert [bad.body for bad in received.failures] == [HEADER + rows[0], HEADER + rows[-1]]
    assert lines_of(received) == [
        "Line 2: a quote is at a position where it is not allowed.",
        "Line 53: a quote is opened and never closed.",
    ]


def test_the_search_for_a_closing_quote_is_bounded(receive: Receive) -> None:
    line = b"x" * 999 + b"\n"
    far = b'"' + line * (MAX_QUOTED_SPAN // 1000 + 10) + b'"\n'
    received = receive(Csv(header=("a",)), b"1\n" + far + b"2\n")
    assert lines_of(received)[0] == "Line 2: a quote is opened and never closed."
    assert received.bodies[0] == b"1\n"
    assert received.bodies[-1] == b"2\n"


def test_a_standard_interchange_fails_as_a_whole(receive: Receive) -> None:
    pipeline = Csv(promote={Region: "region"}, recoverable=False)
    with pytest.raises(PipelineFailure, match="Line 3: the row has one field, not 3"):
        receive(pipeline, HEADER + b"1,EU,1\n2\n3,US,1\n")


@pytest.mark.parametrize(
    ("header", "what"),
    [
        (b"id,total\n", "The header has no columns named 'region'."),
        (b"id,total,Region\n", "The header has no columns named 'region'."),
        (b"region,total,region\n", "The header has 2 columns named 'region'."),
        (b'id,"region,total\n', "The header cannot be read."),
        (b"\xff,region,total\n", "The header cannot be read."),
        (b"region,total," + b"x" * FRAGMENT_SIZE, "The header has 102,420 bytes."),
    ],
)
def test_a_bad_header_fails_the_interchange(receive: Receive, header: bytes, what: str) -> None:
    with pytest.raises(PipelineFailure) as raised:
        receive(ORDERS, header + b"1,EU,1\n")
    assert raised.value.what == what
    assert raised.value.hint


def test_a_large_row_without_a_header_is_passed_by_reference(receive: Receive, tmp_path: Path) -> None:
    large = b'1,EU,"%s"\r\n' % (b"x\n" * FRAGMENT_SIZE)
    interchange = b"\xef\xbb\xbf0,US,x\n" + large + b"2,US,x\n" + large
    path = tmp_path / "orders.csv"
    path.write_bytes(interchange)
    pipeline = Csv(promote={Region: "region"}, header=("id", "region", "text"))
    received = receive(pipeline, FileSlice(path=path, length=len(interchange)))
    assert received.bodies == [b"0,US,x\n", None, b"2,US,x\n", None]
    assert received.column(Region.key) == ["US", "EU", "US", "EU"]
    for row in received.rows[1::2]:
        assert interchange[row["offset"] : row["offset"] + row["length"]] == large


def test_batches_end_at_their_rows_or_bytes(receive: Receive) -> None:
    interchange = HEADER + b"".join(b'%d,"E\nU",%d\n' % (number, number) for number in range(10, 35))
    by_rows = receive(ORDERS, interchange, batch_rows=10)
    assert by_rows.batch_sizes == [10, 10, 5]
    by_bytes = receive(ORDERS, interchange, batch_bytes=100)
    assert max(by_bytes.batch_sizes) == 4
    for received in (by_rows, by_bytes):
        assert received.column(Total.key) == list(range(10, 35))
        assert received.numbers == list(range(1, 26))


fields = st.text(st.characters(codec="utf-8", exclude_characters="\0\ufeff"), max_size=6) | st.sampled_from(
    ["", '"', ",", "\n", "\r\n", 'a"b', "\r", " "]
)


@given(
    st.lists(st.tuples(fields, fields), max_size=12),
    st.sampled_from([csv.QUOTE_ALL, csv.QUOTE_MINIMAL]),
    st.sampled_from(["\n", "\r\n"]),
    st.integers(1, 5),
    st.integers(1, 40),
)
def test_json_written_by_python_is_read(
    rows: list[tuple[str, str]], quoting: Any, end: str, batch_rows: int, batch_bytes: int
) -> None:
    if any("\r" in field for row in rows for field in row):
        # The writer of some Python versions leaves a lone carriage return unquoted.
        quoting = csv.QUOTE_ALL
    written = io.StringIO()
    csv.writer(written, quoting=quoting, lineterminator=end).writerows(rows)
    interchange = written.getvalue().encode()
    a, b = Property("T.A", str), Property("T.B", str)
    pipeline = Csv(promote={a: "a", b: "b"}, header=("a", "b"))
    batches = list(pipeline.disassemble(Bytes(interchange), batch_rows=batch_rows, batch_bytes=batch_bytes))
    came = [row for batch in batches for row in batch.messages.to_pylist()]
    assert not [bad for batch in batches for bad in batch.failures]
    assert b"".join(row["body"] for row in came) == interchange.removeprefix(b"\xef\xbb\xbf")
    assert [(row[a.key] or "", row[b.key] or "") for row in came] == rows
    if quoting is csv.QUOTE_ALL:
        assert [(row[a.key], row[b.key]) for row in came] == rows


@given(st.binary(max_size=60) | st.text('",\n\rab', max_size=60).map(str.encode), st.booleans(), st.integers(1, 20))
def test_every_byte_of_any_input_is_in_one_row(interchange: bytes, has_quotes: bool, batch_bytes: int) -> None:
    pipeline = Csv(header=False, quote='"' if has_quotes else None)
    came: dict[int, bytes] = {}
    for batch in pipeline.disassemble(Bytes(interchange), batch_bytes=batch_bytes):
        came.update(zip(batch.messages["number"].to_pylist(), batch.messages["body"].to_pylist(), strict=True))
        came.update({bad.number: bad.body for bad in batch.failures})
    assert sorted(came) == list(range(1, len(came) + 1))
    rows = b"".join(came[number] for number in sorted(came))
    lines = interchange.removeprefix(b"\xef\xbb\xbf").splitlines(keepends=True)
    assert rows.replace(b"\r", b"").replace(b"\n", b"") == b"".join(lines).replace(b"\r", b"").replace(b"\n", b"")


@pytest.mark.parametrize("pipeline", [Csv(), FlatFile(message_type="row", record=Delimited(["a", "b"], delimiter=","))])
def test_a_row_with_too_many_fields_is_not_parsed(pipeline: Csv | FlatFile) -> None:
    content = Bytes(b"a,b\n" + b"," * (MAX_NODES + 1) + b"\n1,2\n")
    list(pipeline.disassemble(Bytes(b"a,b\n1,2\n")))  # so that everything is imported
    tracemalloc.start()
    try:
        [batch] = pipeline.disassemble(content)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    [bad] = batch.failures
    assert bad.failure.what == "Line 2: the row has about 4,000,002 fields, which is more than a pipeline can read."
    assert bad.body.endswith(b"," * (MAX_NODES + 1) + b"\n")
    assert b"".join(batch.messages["body"].to_pylist()).endswith((b"1,2\n", b"<a>1</a><b>2</b></row>"))
    assert peak < 10 * MAX_NODES  # the row itself, a few times; each field would take 16 bytes more


def test_delimiters_in_quotes_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.pipelines.flat.csv_reader.MAX_NODES", 4)
    [batch] = Csv().disassemble(Bytes(b'a,b\n"1\n,,,,",2\n3,4\n'))
    assert [(bad.number, bad.body) for bad in batch.failures] == [(1, b'a,b\n"1\n,,,,",2\n')]
    assert batch.messages["body"].to_pylist() == [b"a,b\n3,4\n"]
