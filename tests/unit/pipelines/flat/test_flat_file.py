from __future__ import annotations

import json
import tracemalloc
from collections.abc import Iterator
from datetime import datetime
from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from postroom.errors import PipelineFailure
from postroom.message import Bytes, FileSlice
from postroom.pipelines import Delimited, Field, FlatFile, Json, Positional, Receive, load_pipeline
from postroom.properties import Property
from tests.unit.pipelines.conftest import Receive as Run

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Sender = Property("Orders.Sender", str)
Sent = Property("Orders.Sent", datetime)
Secret = Property("Orders.Secret", int, sensitive=True)

ORDERS = FlatFile(
    message_type="urn:orders#Order",
    record=Delimited(["number", "region", Field("total", Decimal)], delimiter=";"),
    header=Delimited(["sender", Field("sent", datetime, format="%Y%m%d%z")], delimiter="|", tag="HDR"),
    trailer=Positional([Field("records", int, width=5, pad="0", justify="right")], tag="TRL"),
    count="records",
    promote={Region: "region", Total: "total", Sender: "header.sender", Sent: "header.sent"},
)
HEADER, TRAILER = b"HDR|Acme|20260131+0000\n", b"TRL00003\n"
INTERCHANGE = HEADER + b"1;EU;10.50\n2;US;7\n3;EU;\n" + TRAILER

FIXED = FlatFile(
    message_type="Stock",
    record=Positional(
        [
            Field("item", width=6),
            Field("quantity", int, width=5, pad="0", justify="right"),
            Field("price", Decimal, width=8, justify="right"),
            Field("sold", bool, width=5),
        ]
    ),
    promote={Total: "price"},
)


def test_each_record_becomes_a_document_between_header_and_trailer(receive: Run) -> None:
    received = receive(ORDERS, INTERCHANGE)
    assert received.bodies == [
        b'<ns0:Order xmlns:ns0="urn:orders"><number>1</number><region>EU</region><total>10.50</total></ns0:Order>',
        b'<ns0:Order xmlns:ns0="urn:orders"><number>2</number><region>US</region><total>7</total></ns0:Order>',
        b'<ns0:Order xmlns:ns0="urn:orders"><number>3</number><region>EU</region></ns0:Order>',
    ]
    assert received.numbers == [1, 2, 3]
    assert received.column("message_type") == ["urn:orders#Order"] * 3
    assert received.column(Region.key) == ["EU", "US", "EU"]
    assert received.column(Total.key) == [Decimal("10.5"), Decimal(7), None]
    assert received.column(Sender.key) == ["Acme"] * 3
    assert [sent.isoformat() for sent in received.column(Sent.key)] == ["2026-01-31T00:00:00+00:00"] * 3


def test_positional_fields_lose_their_padding(receive: Run) -> None:
    received = receive(FIXED, b"nut   00120    0.05true \nbolt  00000 1200   false\n")
    assert received.bodies == [
        b"<Stock><item>nut</item><quantity>120</quantity><price>0.05</price><sold>true</sold></Stock>",
        b"<Stock><item>bolt</item><quantity>0</quantity><price>1200</price><sold>false</sold></Stock>",
    ]
    assert received.column("message_type") == ["Stock"] * 2


def test_documents_are_written_as_json(receive: Run) -> None:
    pipeline = FIXED.model_copy(update={"output": "json"})
    [body] = receive(pipeline, b'a"b   00120    0.05     \n').bodies
    assert json.loads(body) == {"item": 'a"b', "quantity": 120, "price": 0.05, "sold": None}


def test_a_bad_record_is_an_interchange_of_its_own(receive: Run) -> None:
    received = receive(ORDERS, HEADER + b"1;EU;1\n2;US;much\n3;EU;3\n" + TRAILER)
    assert received.numbers == [1, 3]
    [bad] = received.failures
    assert (bad.number, bad.body) == (2, HEADER + b"2;US;much\n" + b"TRL00001\n")
    assert "Line 3: total cannot be read." in str(bad.failure)
    assert "'much' is not a decimal number" in str(bad.failure)
    [corrected] = receive(ORDERS, bad.body.replace(b"much", b"9")).rows
    assert corrected[Total.key] == Decimal(9)
    assert corrected[Sender.key] == "Acme"


@pytest.mark.parametrize(
    ("records", "reason"),
    [
        (b"1;EU\n2;US;2\n3;EU;3\n", "Line 2: the record has 2 fields, not 3."),
        (b'1;"EU;1\n2;US;2\n3;EU;3\n', "Line 2: a quote is opened and never closed."),
        (b"1;E\xffU;1\n2;US;2\n3;EU;3\n", "Line 2: byte 4 is not utf-8."),
        (b"1;E\x01U;1\n2;US;2\n3;EU;3\n", "Line 2: the record has the character U+0001."),
        (b"1;%s;1\n2;US;2\n3;EU;3\n" % (b"E" * 300), "Line 2: Orders.Region cannot be promoted from 'region'."),
    ],
)
def test_a_bad_record_fails_alone_with_its_reason(receive: Run, records: bytes, reason: str) -> None:
    received = receive(ORDERS, HEADER + records + TRAILER)
    assert received.numbers == [2, 3]
    assert reason in received.reasons[0]


@pytest.mark.parametrize(
    ("interchange", "reason"),
    [
        (b"", "The header cannot be read.\nThe interchange is empty."),
        (b"1;EU;1\n" + TRAILER, "Line 1: the record does not start with 'HDR'"),
        (b"HDR|Acme\n1;EU;1\nTRL00001\n", "The header cannot be read.\nLine 1: the record has one field, not 2."),
        (HEADER, "The trailer cannot be read.\nThe interchange has no trailer."),
        (HEADER + b"1;EU;1\n", "The trailer cannot be read.\nLine 2: the record does not start with 'TRL'"),
        (HEADER + b"1;EU;1\n" + TRAILER, "The trailer has the count 3, but there is one record."),
        (HEADER + b"1;EU;1\nTRL     \n", "The trailer has the count (empty), but there is one record."),
        (b"HDR|Acme|\xff\n" + TRAILER, "The header cannot be read.\nLine 1: byte 10 is not utf-8."),
        (b"HDR|%s|20260131+0000\nTRL00000\n" % (b"a" * 300), "Orders.Sender cannot be promoted from 'header.sender'"),
    ],
)
def test_a_bad_header_or_trailer_fails_the_interchange(interchange: bytes, reason: str) -> None:
    batches = ORDERS.disassemble(Bytes(interchange), batch_rows=1)
    with pytest.raises(PipelineFailure) as failure:
        next(batches)
    assert reason in str(failure.value)


def test_a_header_and_a_trailer_without_records_yield_no_messages(receive: Run) -> None:
    assert receive(ORDERS, HEADER + b"TRL00000\r\n\r\n").batch_sizes == []


def test_one_bad_record_fails_a_standard_interchange() -> None:
    standard = ORDERS.model_copy(update={"recoverable": False})
    with pytest.raises(PipelineFailure, match="Line 2: the record has 2 fields"):
        list(standard.disassemble(Bytes(HEADER + b"1;EU\n2;US;2\n3;EU;3\n" + TRAILER)))


WITH_LINES = FlatFile(
    message_type="urn:orders#Order",
    record=Delimited(["number", "region"], tag="ORD", delimiter=";"),
    lines={
        "Line": Delimited(["item", Field("quantity", int)], tag="LIN", delimiter=";"),
        "Note": Delimited(["text"], tag="NTE", delimiter=";"),
    },
    trailer=Delimited([Field("records", int)], tag="END", delimiter=";"),
    count="records",
    promote={Region: "region"},
)
TWO_ORDERS = b"ORD;1;EU\nLIN;nut;5\nNTE;soon\nLIN;bolt;6\nORD;2;US\nEND;5\n"


def test_lines_belong_to_the_record_before_them(receive: Run) -> None:
    received = receive(WITH_LINES, TWO_ORDERS)
    assert received.bodies == [
        (
            b'<ns0:Order xmlns:ns0="urn:orders"><number>1</number><region>EU</region>'
            b"<Line><item>nut</item><quantity>5</quantity></Line><Note><text>soon</text></Note>"
            b"<Line><item>bolt</item><quantity>6</quantity></Line></ns0:Order>"
        ),
        b'<ns0:Order xmlns:ns0="urn:orders"><number>2</number><region>US</region></ns0:Order>',
    ]
    assert received.column(Region.key) == ["EU", "US"]
    [first, second] = receive(WITH_LINES.model_copy(update={"output": "json"}), TWO_ORDERS).bodies
    lines = [{"item": "nut", "quantity": 5}, {"item": "bolt", "quantity": 6}]
    assert json.loads(first) == {"number": "1", "region": "EU", "Line": lines, "Note": [{"text": "soon"}]}
    assert json.loads(second) == {"number": "2", "region": "US", "Line": [], "Note": []}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (b"LIN;nut;many", "Line 2: quantity cannot be read."),
        (b"LIN;nut", "Line 2: the record has one field, not 2."),
        (b"LIM;nut;5", "Line 2: the record has an unknown tag."),
        (b'LIN;"nut;5', "Line 2: a quote is opened and never closed."),
    ],
)
def test_a_bad_line_fails_its_record_alone(receive: Run, bad: bytes, reason: str) -> None:
    received = receive(WITH_LINES, TWO_ORDERS.replace(b"LIN;nut;5", bad))
    assert received.numbers == [2]
    [failed] = received.failures
    assert failed.body == b"ORD;1;EU\n" + bad + b"\nNTE;soon\nLIN;bolt;6\nEND;4\n"
    assert reason in received.reasons[0]
    assert receive(WITH_LINES, failed.body.replace(bad, b"LIN;nut;5")).numbers == [1]


def test_lines_without_a_record_are_bad(receive: Run) -> None:
    received = receive(WITH_LINES, b"LIN;nut;5\nORD;1;EU\nEND;2\n")
    assert received.numbers == [2]
    assert "Line 1: the record does not start with 'ORD'." in received.reasons[0]


def test_positional_lines(receive: Run) -> None:
    pipeline = FlatFile(
        message_type="Order",
        record=Positional([Field("number", width=2)], tag="1"),
        lines={"Line": Positional([Field("item", width=4)], tag="2")},
    )
    assert receive(pipeline, b"1AB\n2nut \n1CD\n").bodies == [
        b"<Order><number>AB</number><Line><item>nut</item></Line></Order>",
        b"<Order><number>CD</number></Order>",
    ]


@pytest.mark.parametrize(
    ("record", "lines", "problem"),
    [
        (Delimited(["a"]), {"L": Delimited(["b"], tag="2")}, "L: the record and its lines need tags"),
        (Delimited(["a"], tag="1"), {"L": Delimited(["b"])}, "L: the record and its lines need tags"),
        (Delimited(["a"], tag="1"), {"L": Delimited(["b"], tag="12")}, "is the start of another tag"),
        (Delimited(["a"], tag="1"), {"a": Delimited(["b"], tag="2")}, "'a' cannot be the name of a line"),
        (
            Delimited(["a"], tag="1"),
            {"L": Delimited(["b"], tag="2", delimiter=";")},
            "needs the same delimiters as the record",
        ),
        (
            Delimited(["a"], tag="1"),
            {"L": Positional([Field("b", width=1)], tag="2")},
            "needs the same delimiters as the record",
        ),
        (Delimited(["a"], tag="1"), {"L": Delimited([], tag="2")}, "L: There are no fields."),
    ],
)
def test_problems_of_lines(record: Delimited, lines: dict[str, Delimited | Positional], problem: str) -> None:
    [found] = FlatFile(message_type="R", record=record, lines=lines).problems()
    assert problem in found


@pytest.mark.parametrize(
    ("record", "line", "fields"),
    [
        (Delimited(["a", "b"]), b'"x,""y""\n",2', ['x,"y"\n', "2"]),
        (Delimited(["a", "b"], quote=None, escape="\\"), b"x\\,y\\\\,2", ["x,y\\", "2"]),
        (Delimited(["a", "b"], escape="\\"), b'"x\\"""\\\\",2', ['x""\\', "2"]),
        (Delimited(["a", "b"], delimiter="||"), b'x|y||"||"', ["x|y", "||"]),
        (Delimited(["a", "b"], tag="T"), b"T,1,2", ["1", "2"]),
        (Positional([Field("a", width=2), Field("b", width=2)], tag="T"), b"T x2 ", [" x", "2"]),
        (
            Positional([Field("a", width=2), Field("b", width=2, required=False)], allow_early_termination=True),
            b"x",
            ["x", ""],
        ),
        (Positional([Field("a", width=3, pad="*", justify="right"), Field("b", width=1)]), b"**x*", ["x", "*"]),
    ],
)
def test_layouts(receive: Run, record: Delimited | Positional, line: bytes, fields: list[str]) -> None:
    pipeline = FlatFile(message_type="R", record=record)
    for end in (b"", b"\n", b"\r\n"):
        [body] = receive(pipeline, line + end).bodies
        assert [element.text or "" for element in etree.fromstring(body)] == fields


@pytest.mark.parametrize(
    ("record", "line", "reason"),
    [
        (Delimited(["a"], tag="T"), b"U,1", "Line 1: the record does not start with 'T'."),
        (Positional([Field("a", width=2)]), b"1", "Line 1: the record has one character, not 2."),
        (Positional([Field("a", width=2)], allow_early_termination=True), b"123", "3 characters, not 2"),
        (Delimited([Field("a", required=True), "b"]), b",2", "Line 1: a is empty."),
        (Delimited([Field("a", int)]), b"3.5", "'3.5' is not a whole number."),
        (Delimited([Field("a", datetime, format="%d.%m.%Y")]), b"31.02.2026", "not a date in the form %d.%m.%Y"),
        (Delimited(["a", "b"], quote=None, escape="\\"), b"1,2\\", "carriage return"),
    ],
)
def test_a_record_that_does_not_match_its_layout_is_bad(
    receive: Run, record: Delimited | Positional, line: bytes, reason: str
) -> None:
    received = receive(FlatFile(message_type="R", record=record), line)
    assert reason in received.reasons[0]


def test_a_sensitive_value_is_not_in_the_reason(receive: Run) -> None:
    pipeline = FlatFile(message_type="R", record=Delimited([Field("pin", int)]), promote={Secret: "pin"})
    [reason] = receive(pipeline, b"12x4\n").reasons
    assert "pin cannot be read" in reason
    assert "12x4" not in reason


@pytest.mark.parametrize(
    ("encoding", "end"), [("utf-8", "\n"), ("utf-8-sig", "\n"), ("latin-1", "~"), ("cp037", "\n"), ("cp037", "\x85")]
)
def test_encodings_and_record_ends_are_supported(receive: Run, encoding: str, end: str) -> None:
    pipeline = FlatFile(message_type="R", record=Delimited(["a", "b"]), encoding=encoding, end=end)
    received = receive(pipeline, f'é,1{end}"x{end}y",2{end}'.encode(encoding))
    assert received.bodies == ["<R><a>é</a><b>1</b></R>".encode(), f"<R><a>x{end}y</a><b>2</b></R>".encode()]


def test_line_ends_after_another_record_end_are_ignored(receive: Run) -> None:
    pipeline = FlatFile(
        message_type="R",
        record=Delimited([Field("a", int)]),
        trailer=Delimited([Field("n", int)], tag="T"),
        count="n",
        end="'",
    )
    received = receive(pipeline, b"1'\r\nx'\r\nT,2'\r\n")
    assert received.bodies == [b"<R><a>1</a></R>"]
    assert received.failures[0].body == b"\r\nx'\r\nT,1'"


def test_markup_and_line_ends_in_a_field_survive(receive: Run) -> None:
    [body] = receive(FlatFile(message_type="R", record=Delimited(["a"])), b'"<&>\r\n\'"""\r\n').bodies
    assert etree.fromstring(body)[0].text == "<&>\r\n'\""


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"record": Delimited([])}, "record: There are no fields."),
        ({"record": Delimited(["a", "a"])}, "record: Two fields are named 'a'."),
        ({"record": Delimited(["a b"])}, "'a b' is not a valid field name"),
        ({"record": Delimited([Field("a", width=3)])}, "a has a width, which is for positional records."),
        ({"record": Positional([Field("a")])}, "a needs a width of at least one character."),
        ({"record": Positional([Field("a", width=2, pad="")])}, "The padding '' of a must be one character."),
        ({"record": Delimited([Field("a", int, format="%d")])}, "a has a format, which is for dates only."),
        ({"record": Delimited([Field("a", datetime, format="%Q")])}, "The format '%Q' of a cannot be read"),
        ({"record": Delimited(["a"], delimiter="")}, "The delimiter '' must have at least one character"),
        ({"record": Delimited(["a"], quote=",")}, "The quote ',' must be one character"),
        ({"record": Delimited(["a"], escape='"')}, "The quote and the escape are the same character"),
        ({"record": Delimited(["a"], tag="")}, "The tag is empty"),
        ({"header": Positional([])}, "header: There are no fields."),
        ({"message_type": "a b"}, "The message type 'a b' must be a name"),
        ({"message_type": "#a"}, "The message type '#a' must be a name"),
        ({"promote": {Region: "b"}}, "'b', which is not a field of the record."),
        ({"promote": {Region: "header.a"}}, "'header.a', which is not a field of the header."),
        ({"count": "n"}, "'n', which is not a field of the trailer"),
        ({"count": "n", "trailer": Delimited(["n"])}, "'n', which must be an int field."),
        ({"encoding": "utf-9"}, "'utf-9' is not a known text encoding"),
        ({"encoding": "rot13"}, "'rot13' is not a known text encoding"),
        ({"encoding": "utf-16"}, "Records cannot be found in the encoding"),
        ({"end": "ab"}, "The end of a record, 'ab', must be one character"),
        ({"record": Delimited(["a"], tag="ORD,")}, "record: The tag 'ORD,' contains the delimiter ','"),
        ({"record": Delimited(["a"], tag="A||", delimiter="||")}, "record: The tag 'A||' contains the delimiter '||'"),
        ({"record": Delimited(["a"], tag='"A"')}, "record: The tag '\"A\"' contains the quote '\"'"),
        ({"record": Delimited(["a"], tag="A!", escape="!")}, "record: The tag 'A!' contains the escape '!'"),
        ({"header": Positional([Field("a", width=1)], tag="A\n")}, "header: The tag 'A\\n' contains a line end"),
        ({"end": "é"}, "The end of a record, 'é', must be one character"),
        ({"end": "|", "encoding": "shift_jis"}, "may be part of another character"),
    ],
)
def test_problems(changes: dict[str, object], problem: str) -> None:
    [found] = FlatFile(**{"message_type": "R", "record": Delimited(["a"]), **changes}).problems()  # type: ignore[arg-type]
    assert problem in found


def test_a_definition_survives_storage() -> None:
    for pipeline in (ORDERS, FIXED, WITH_LINES):
        stored = json.loads(json.dumps(pipeline.model_dump(mode="json")))
        assert load_pipeline(stored) == pipeline
        assert load_pipeline(stored).problems() == []


def test_as_a_component_it_accepts_content_that_starts_with_its_tag(receive: Run) -> None:
    pipeline = Receive(disassemble=[ORDERS, Json()])
    batches = list(pipeline.disassemble(Bytes(INTERCHANGE)))
    assert [batch.messages.num_rows for batch in batches] == [3]
    assert batches[0].decoded is not None
    assert batches[0].decoded.content_type == "application/xml"
    [other] = pipeline.disassemble(Bytes(b'{"a": 1}'))
    assert other.messages["body"].to_pylist() == [b'{"a": 1}']


def test_documents_are_xml_and_the_interchange_is_text() -> None:
    [batch] = ORDERS.disassemble(Bytes(INTERCHANGE))
    assert batch.decoded is not None
    assert batch.decoded.content_type == "application/xml"
    assert ORDERS.content_type == "text/plain"


class _Long:
    """A body of many records that are generated while they are read."""

    records = 10_000
    line = b"%07d;EU;1.00\n"
    size = records * len(line % 1) + len(HEADER) + len(b"TRL00003\n")

    def chunks(self) -> Iterator[bytes]:
        yield HEADER
        for start in range(0, self.records, 100):
            yield b"".join(self.line % number for number in range(start, start + 100))
        yield b"TRL%d\n" % self.records


def test_a_long_file_is_read_in_constant_memory() -> None:
    trailer = Positional([Field("records", int, width=5)], tag="TRL")
    pipeline = ORDERS.model_copy(update={"trailer": trailer})
    list(ORDERS.disassemble(Bytes(INTERCHANGE)))  # so that everything is imported
    tracemalloc.start()
    try:
        rows = sum(batch.messages.num_rows for batch in pipeline.disassemble(_Long(), batch_rows=100))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows == _Long.records
    assert peak < 1 << 19  # its documents have twice as much


def test_the_number_of_lines_of_a_record_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line takes half a kilobyte of memory, however short it is."""
    pipeline = FlatFile(
        message_type="Order",
        record=Delimited(["number"], delimiter=";", tag="O"),
        lines={"Line": Delimited(["item"], delimiter=";", tag="L")},
    )
    monkeypatch.setattr("postroom.pipelines.flat.file.MAX_NODES", 60)
    content = b"O;1\n" + b"L;\n" * 9
    [batch] = pipeline.disassemble(Bytes(content * 3))
    assert batch.messages.num_rows == 3
    with pytest.raises(PipelineFailure, match="Line 11: the record and its lines have more fields than"):
        list(pipeline.disassemble(Bytes(content + content + b"L;\n")))


@settings(max_examples=60)
@given(
    st.lists(
        st.lists(st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8), min_size=3, max_size=3),
        max_size=12,
    ),
    st.integers(1, 5),
)
def test_written_values_are_read_back(records: list[list[str]], rows: int) -> None:
    pipeline = FlatFile(message_type="R", record=Delimited(["a", "b", "c"]), output="json")
    lines = ["".join('"' + field.replace('"', '""') + '",' for field in record)[:-1] for record in records]
    batches = pipeline.disassemble(Bytes("\n".join(lines).encode()), batch_rows=rows)
    bodies = [body for batch in batches for body in batch.messages["body"].to_pylist()]
    assert [list(json.loads(body).values()) for body in bodies] == records


def test_a_body_in_a_file_is_not_loaded_into_memory(receive: Run, tmp_path: Path) -> None:
    path = tmp_path / "orders.txt"
    path.write_bytes(b"before" + INTERCHANGE)
    body = FileSlice(path=path, offset=6, length=len(INTERCHANGE))
    assert receive(ORDERS, body, batch_bytes=10).numbers == [1, 2, 3]


def test_a_placeholder_for_no_date_fails_its_record_alone(receive: Run) -> None:
    """A date at the lower limit cannot be converted to UTC."""
    dated = FlatFile(message_type="R", record=Delimited(["id", Field("d", datetime, format="%Y-%m-%d")]))
    received = receive(dated, b"1,2026-01-01\n2,0001-01-01\n3,2026-01-03\n")
    assert received.numbers == [1, 3]
    assert [bad.number for bad in received.failures] == [2]
    assert "outside the years 1 to 9999" in received.reasons[0]
