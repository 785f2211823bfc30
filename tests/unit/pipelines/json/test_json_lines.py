from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pytest

from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE, Bytes, FileSlice
from postroom.pipelines import JsonLines
from postroom.pipelines.documents.disassembled_batch import MAX_DOCUMENT_SIZE
from postroom.properties import Property
from tests.unit.pipelines.conftest import Receive

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)

ORDERS = JsonLines(promote={Region: "region", Total: "total", Priority: "priority"}, message_type="order")


def test_each_line_is_a_message(receive: Receive) -> None:
    lines = [b'{"region": "EU", "total": 10.10, "priority": 1}', b'{"region": "US"}', b" {} "]
    received = receive(ORDERS, b"\n".join(lines) + b"\n")
    assert received.bodies == lines
    assert received.numbers == [1, 2, 3]
    assert received.column("message_type") == ["order"] * 3
    assert received.column(Region.key) == ["EU", "US", None]
    assert received.column(Total.key) == [Decimal("10.10"), None, None]
    assert received.column(Priority.key) == [1, None, None]


@pytest.mark.parametrize(
    "interchange",
    [
        b'{"region": "EU"}\n{"region": "US"}',
        b'{"region": "EU"}\r\n{"region": "US"}\r\n',
        b'\xef\xbb\xbf{"region": "EU"}\n{"region": "US"}\n',
        b'\n\n{"region": "EU"}\n \t\r\n\n{"region": "US"}\n\n',
    ],
    ids=["no newline at the end", "CR LF", "byte order mark", "blank lines"],
)
def test_line_ends_marks_and_blank_lines_are_ignored(receive: Receive, interchange: bytes) -> None:
    received = receive(ORDERS, interchange)
    assert received.bodies == [b'{"region": "EU"}', b'{"region": "US"}']
    assert received.numbers == [1, 2]


@pytest.mark.parametrize("interchange", [b"", b"\n", b" \r\n\n", b"\xef\xbb\xbf\n"])
def test_an_interchange_without_documents_is_consumed(receive: Receive, interchange: bytes) -> None:
    received = receive(ORDERS, interchange)
    assert (received.rows, received.failures) == ([], [])


def test_a_bad_line_is_suspended_and_the_others_are_published(receive: Receive) -> None:
    lines = [
        b'{"region": "EU"}',
        b'{"region": "EU"',
        b'{"region": 5}',
        b"",
        b'{"region": "\xff"}',
        b'{"skipped": "\xff"}',
        b'{"total": 1e400}',
        b'{"priority": 2.0}',
        b'{"region": "a\\u0000"}',
        b'{"priority": 9223372036854775808}',
        b'{"region": "US"} {"region": "US"}',
        b'{"total": "1.50"}',
    ]
    received = receive(ORDERS, b"\r\n".join(lines))
    assert received.numbers == [1, 7, 11]
    assert received.bodies == [lines[0], lines[7], lines[11]]
    assert received.column(Priority.key) == [None, 2, None]
    assert received.column(Total.key) == [None, None, Decimal("1.50")]
    bad_lines = {2: 2, 3: 3, 4: 5, 5: 6, 6: 7, 8: 9, 9: 10, 10: 11}
    assert {bad.number: bad.body for bad in received.failures} == {
        number: lines[line - 1] for number, line in bad_lines.items()
    }
    assert [reason.splitlines()[0] for reason in received.reasons] == [
        "Line 2: The document is not valid JSON: it ends early, after byte 15.",
        "Line 3: Orders.Region cannot be promoted from 'region'.",
        "Line 5: The document is not UTF-8 at byte 13.",
        "Line 6: The document is not UTF-8 at byte 14.",
        "Line 7: Orders.Total cannot be promoted from 'total'.",
        "Line 9: Orders.Region cannot be promoted from 'region'.",
        "Line 10: Orders.Priority cannot be promoted from 'priority'.",
        "Line 11: The document is not valid JSON at byte 19.",
    ]


def test_a_value_that_spans_two_lines_is_two_bad_lines(receive: Receive) -> None:
    received = receive(ORDERS, b'{"region":\n"EU"}\n{}{}\n{}\n')
    assert [bad.number for bad in received.failures] == [1, 2, 3]
    assert received.numbers == [4]


def test_a_standard_interchange_fails_as_a_whole(receive: Receive) -> None:
    pipeline = JsonLines(promote={Region: "region"}, recoverable=False)
    with pytest.raises(PipelineFailure, match="Line 3: "):
        receive(pipeline, b'{"region": "EU"}\n{"region": "US"}\n{"region": 5}\n{"region": "US"}\n')
    assert receive(pipeline, b"{}\n{}\n").numbers == [1, 2]


def test_batches_end_at_their_rows_or_bytes(receive: Receive) -> None:
    interchange = b"".join(b'{"priority": %d}\n' % number for number in range(25))
    by_rows = receive(ORDERS, interchange, batch_rows=10)
    by_bytes = receive(ORDERS, interchange, batch_bytes=100)
    assert by_rows.batch_sizes == [10, 10, 5]
    assert max(by_bytes.batch_sizes) <= 12
    for received in (by_rows, by_bytes):
        assert received.numbers == list(range(1, 26))
        assert received.column(Priority.key) == list(range(25))


def test_numbers_and_lines_continue_across_batches(receive: Receive) -> None:
    received = receive(ORDERS, b"{}\n\n{}\nbad\n\n{}\nbad", batch_rows=2)
    assert received.numbers == [1, 2, 4]
    assert [bad.number for bad in received.failures] == [3, 5]
    assert [reason[:6] for reason in received.reasons] == ["Line 4", "Line 7"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_a_large_line_is_passed_by_reference(receive: Receive, tmp_path: Path, mark: bytes, end: bytes) -> None:
    large = json.dumps({"region": "EU", "pad": "é" * FRAGMENT_SIZE}, ensure_ascii=False).encode()
    lines = [large, b'{"region": "US"}', large, b"", large + b"!", large]
    interchange = mark + end.join(lines)
    path = tmp_path / "orders.jsonl"
    path.write_bytes(b"before" + interchange + b"after")
    received = receive(ORDERS, FileSlice(path=path, offset=6, length=len(interchange)))
    assert received.numbers == [1, 2, 3, 5]
    assert received.column(Region.key) == ["EU", "US", "EU", "EU"]
    assert received.bodies == [None, lines[1], None, None]
    assert [bad.body for bad in received.failures] == [large + b"!"]
    for row in received.rows:
        if row["body"] is None:
            assert interchange[row["offset"] : row["offset"] + row["length"]] == large


def test_a_line_above_the_maximum_size_fails_the_interchange(receive: Receive, tmp_path: Path) -> None:
    path = tmp_path / "orders.jsonl"
    with path.open("wb") as file:
        file.write(b"{}\n")
        file.truncate(2 * MAX_DOCUMENT_SIZE)
    with pytest.raises(PipelineFailure, match=r"Line 2 has .* bytes or more"):
        receive(ORDERS, FileSlice(path=path, length=2 * MAX_DOCUMENT_SIZE))


def test_utf_16_fails_the_interchange(receive: Receive) -> None:
    with pytest.raises(PipelineFailure, match="UTF-16"):
        receive(ORDERS, "{}\n{}\n".encode("utf-16"))


def test_lines_are_checked_also_without_promotions(receive: Receive) -> None:
    received = receive(JsonLines(), b'[1]\n{"a":}\n"text"\n')
    assert received.numbers == [1, 3]
    assert [bad.number for bad in received.failures] == [2]


def test_a_body_in_memory_is_not_copied_as_a_whole() -> None:
    """The memory in addition to the body is that of one batch, however many there are."""
    body = Bytes(b'{"region": "EU"}\n' * 10_000)
    sizes = [batch.messages.nbytes for batch in ORDERS.disassemble(body, batch_rows=100)]
    assert len(sizes) == 100
    assert max(sizes) < 20_000
