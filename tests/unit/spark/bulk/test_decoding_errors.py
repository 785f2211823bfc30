"""Rows in which Spark's reader has replaced bytes are found in their file. Runs without Spark."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import Property, pipelines
from postroom.pipelines.rows.batch import RowMessages, read_rows
from postroom.spark.bulk.row_lines import RowLines, TextEncoding, count_line_ends, mark_undecoded, read_split_lines

Note = Property("Orders.Note", str)
ROWS = pipelines.Rows(promote={Note: "note"}, body="csv").with_columns(("note",), None)
LATIN = "müd".encode("iso-8859-1")


def as_spark_reads(*lines: bytes, bad: tuple[int, ...] = ()) -> pa.RecordBatch:
    texts = [line.decode(errors="replace") for line in lines]
    return pa.RecordBatch.from_pydict(
        {
            "body": pa.array([text.encode() for text in texts]),
            "value0": texts,
            "bad": pa.array([text.encode() if row in bad else None for row, text in enumerate(texts)], pa.binary()),
        }
    )


def read_rows_of(
    encoding: TextEncoding | None, path: Path, *batches: pa.RecordBatch, start: int = 0, length: int | None = None
) -> RowMessages:
    assert encoding is not None
    length = path.stat().st_size if length is None else length
    checked = list(mark_undecoded(RowLines(encoding, path, start, length), iter(batches)))
    assert [batch.num_rows for batch in checked] == [batch.num_rows for batch in batches]
    tables = [pa.Table.from_batches([batch]) for batch in checked]
    table = pa.concat_tables(tables, promote_options="default").combine_chunks()
    return read_rows(ROWS, table.to_batches()[0], 1)


def of_csv(**options: str) -> TextEncoding | None:
    return TextEncoding.from_options("csv", options, ROWS)


def test_a_row_that_is_not_utf8_is_bad_and_keeps_its_bytes(tmp_path: Path) -> None:
    lines = [b"note", b"", b"good", LATIN, b"#" + LATIN, "really \ufffd".encode(), b"\t ", b"bad " + LATIN, b"good"]
    path = tmp_path / "a.csv"
    path.write_bytes(b"\r\n".join(lines))
    read = [lines[2], lines[3], lines[5]], [lines[7], lines[8]]
    found = read_rows_of(
        of_csv(header="true", comment="#"), path, as_spark_reads(*read[0]), as_spark_reads(*read[1], bad=(0,))
    )
    assert [(failure.number, failure.body) for failure in found.failures] == [(2, LATIN), (4, b"bad " + LATIN)]
    failure = found.failures[0].failure
    assert (failure.what, "options={'encoding': ...}" in failure.hint) == ("Row 2 is not UTF-8.", True)
    assert found.messages["number"].to_pylist() == [1, 3, 5]


def test_a_file_without_replacement_characters_is_not_opened(tmp_path: Path) -> None:
    found = read_rows_of(of_csv(), tmp_path / "not there", as_spark_reads(b"good", "ü".encode()), length=1)
    assert found.failures == ()


@pytest.mark.parametrize(
    "options", [{"multiLine": "true"}, {"lineSep": "||"}, {"encoding": "no such"}, {"header": "true"}]
)
def test_a_row_whose_bytes_are_not_found_is_kept_as_spark_read_it(tmp_path: Path, options: dict[str, str]) -> None:
    """With a wrong header option, the lines are not those of the rows."""
    path = tmp_path / "a.csv"
    path.write_bytes(LATIN + b"\ngood")
    found = read_rows_of(of_csv(**options), path, as_spark_reads(LATIN, b"good"))
    [bad] = found.failures
    assert bad.body == "m\ufffdd".encode()
    assert "original bytes are lost" in bad.failure.why
    assert found.messages["number"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("options", "content"),
    [
        ({"multiLine": "true"}, "a \ufffd\nb"),
        ({"encoding": "UTF-16LE", "lineSep": "\n"}, "a \ufffd\nb"),
        ({"encoding": "utf-8"}, "a \ufffd\nb"),
    ],
)
def test_a_row_with_a_replacement_character_is_valid(tmp_path: Path, options: dict[str, str], content: str) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(content.encode(options.get("encoding", "utf-8")))
    found = read_rows_of(of_csv(**options), path, as_spark_reads(*content.encode().split(b"\n")))
    assert found.failures == ()


def test_missing_and_compressed_files_are_handled(tmp_path: Path) -> None:
    found = read_rows_of(of_csv(), tmp_path / "gone", as_spark_reads(LATIN), length=1)
    assert [failure.body for failure in found.failures] == ["m\ufffdd".encode()]
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"good\n" + LATIN + b"\n"))
    found = read_rows_of(of_csv(), path, as_spark_reads(b"good", LATIN))
    assert [failure.body for failure in found.failures] == [LATIN]
    whole = path.read_bytes()
    for broken in (whole[:-10], whole[:10] + b"\xff" * 20, b"no gzip"):
        path.write_bytes(broken)
        assert len(read_rows_of(of_csv(), path, as_spark_reads(b"good", LATIN)).failures) == 1


def test_invalid_bytes_of_other_encodings_are_found(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(LATIN + b"\ngood")
    found = read_rows_of(of_csv(charset="US-ASCII"), path, as_spark_reads(LATIN, b"good"))
    assert [(failure.body, failure.failure.what) for failure in found.failures] == [(LATIN, "Row 1 is not US-ASCII.")]


def test_rows_that_the_json_reader_reports_keep_their_bytes(tmp_path: Path) -> None:
    batch = as_spark_reads(b"{}", b"{}", "\ufffd".encode())
    batch = batch.set_column(2, "bad", pa.array([b'{"a":"' + LATIN + b'"}', b"{", None], pa.binary()))
    found = read_rows_of(TextEncoding.from_options("json", {}, ROWS), tmp_path / "not opened", batch, length=1)
    assert [(failure.body, failure.failure.what) for failure in found.failures] == [
        (b'{"a":"' + LATIN + b'"}', "Row 1 is not UTF-8."),
        (b"{", "Row 2 does not fit the schema."),
    ]
    assert TextEncoding.from_options("json", {"multiLine": "true", "encoding": "UTF-8"}, ROWS) == TextEncoding()


def test_a_line_of_text_is_checked_only_if_it_is_converted(tmp_path: Path) -> None:
    as_it_is = pipelines.Rows().with_columns(("value",), "value")
    assert TextEncoding.from_options("text", {}, as_it_is) is None
    assert TextEncoding.from_options("parquet", {}, ROWS) is None
    path = tmp_path / "a.txt"
    path.write_bytes(b"good\n\n" + LATIN + b"\n")
    batch = as_spark_reads(b"good", b"", LATIN).drop_columns(["bad"])
    found = read_rows_of(TextEncoding.from_options("text", {}, ROWS), path, batch)
    assert [(failure.number, failure.body) for failure in found.failures] == [(3, LATIN)]


def test_a_promoted_value_that_is_not_text_makes_its_row_bad() -> None:
    """A reader that does not decode returns all bytes."""
    raw = _raw([b"EU", LATIN, None])
    batch = pa.RecordBatch.from_pydict({"body": pa.array([b"EU", LATIN, b"x"]), "value0": raw})
    found = read_rows(ROWS, batch, 1)
    assert [(failure.number, failure.body) for failure in found.failures] == [(2, LATIN)]
    assert "'m\ufffdd'" in found.failures[0].failure.why
    assert found.messages[Note.key].to_pylist() == ["EU", None]


def _raw(values: list[bytes | None]) -> pa.Array:
    """Return a column of strings that was not validated."""
    binary = pa.array(values, pa.binary())
    return pa.Array.from_buffers(pa.string(), len(values), binary.buffers(), binary.null_count)


@given(
    content=st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b""]), max_size=30).map(b"".join),
    size=st.integers(1, 12),
    separator=st.sampled_from([None, b"c"]),
)
def test_every_line_belongs_to_one_split_and_has_its_number_in_the_file(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, size: int, separator: bytes | None
) -> None:
    path = tmp_path_factory.mktemp("lines") / "a"
    path.write_bytes(content)
    numbered = [
        (count_line_ends(path, 0, start, separator) + index + 1, line)
        for start in range(0, len(content), size)
        for index, line in read_split_lines(path, start, size, separator)
    ]
    expected = content.splitlines() if separator is None else content.split(separator)
    if separator is not None and expected[-1] == b"":
        expected.pop()
    assert numbered == list(enumerate(expected, 1))
