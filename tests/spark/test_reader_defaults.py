"""The defaults of Spark's readers, as docs/how-to/bulk-files.md describes them: rows that are not reported as bad."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from postroom import pipelines
from postroom.pipelines.rows.batch import BAD, BODY
from postroom.spark.bulk.read_plan import ReadPlan, clone_session, read_files
from tests.support.box import Box
from tests.support.bulk_location import add_bulk_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMA = "id bigint, note string, total decimal(12,2), f double, at timestamp"
ROWS = pipelines.Rows(body="json")


@pytest.fixture
def read(session: SparkSession, box: Box, folder: Path) -> Any:
    """Return the bodies of the rows of a file, or the texts of bad rows, as a bulk location reads them."""

    def read_now(format: str, content: bytes, **options: Any) -> list[str]:
        name = f"{format}{len(options)}"
        location = add_bulk_location(
            box, folder, format=format, name=name, schema=SCHEMA, options=options, pipeline=ROWS
        )
        reading = ReadPlan.create(session, location, [])
        path = folder / "a"
        path.write_bytes(content)
        frame = read_files(clone_session(session, reading.settings), reading, ROWS, [str(path)])
        return [bytes(row[BAD] or row[BODY]).decode() for row in frame.select(BODY, BAD).collect()]

    return read_now


def row(number: int, **values: str) -> str:
    fields = {"id": str(number), "note": "null", "total": "null", "f": "null", "at": "null", **values}
    return "{" + ",".join(f'"{name}":{value}' for name, value in fields.items()) + "}"


def test_csv_rows_that_are_not_reported_as_bad(read: Any) -> None:
    texts = b'1,"a ""q"" b",,,\n2,"a\n3,,,,\n4,"",,,\n5, EU ,,,\n   \n'
    numbers = b'6,,0.005,,\n7,,"1,5",,\n8,,,"1,5",\n9,,,NaN,\n10,, 1,,\n'
    assert read("csv", texts + numbers) == [
        row(1, note=r'"\"a \"\"q\"\" b\""'),
        '2,"a',
        row(3),
        row(4),
        row(5, note='" EU "'),
        row(6, total="0.01"),
        row(7, total="15.00"),
        '8,,,"1,5",',
        row(9, f='"NaN"'),
        "10,, 1,,",
    ]
    options = {"escape": '"', "nullValue": "NULL", "locale": "de-DE", "ignoreLeadingWhiteSpace": True}
    content = b'1,"a ""q"" b",NULL,NULL,NULL\n2,"","1,5",NULL,NULL\n3, EU, 1,NULL,NULL\n'
    assert read("csv", content, **options) == [
        row(1, note=r'"a \"q\" b"'),
        row(2, note='""', total="1.50"),
        row(3, note='"EU"', total="1.00"),
    ]


def test_json_rows_that_are_not_reported_as_bad(read: Any) -> None:
    lines = [
        b'{"ID":1,"id":2,"more":3}',
        b'{"id":3,"id":4}',
        b'{"id":5,"note":{"a":1}}',
        b'{"id":6,"total":0.005}',
        b'{"id":"7"}',
        b'[{"id":8},{"id":9}]',
        b'{"id":10} {"id":11}',
    ]
    assert read("json", b"\n".join(lines)) == [
        row(2),
        row(4),
        row(5, note=r'"{\"a\":1}"'),
        row(6, total="0.01"),
        '{"id":"7"}',
        row(8),
        row(9),
        row(10),
    ]
