"""Spark's readers read rows in parallel tasks, and each row is published once (ADR 0024, RCV-12)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from postroom import pipelines
from postroom.errors import StateError
from postroom.messagebox.connection import Login
from postroom.messagebox.intake.file_claims import FileClaimState
from postroom.operations.ports.receive_locations import list_locations
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.spark.bulk.running_bulk_location import RunningBulkLocation
from tests.spark.conftest import ClaimFiles
from tests.support.box import PROMOTE, Box, Region
from tests.support.bulk_location import add_bulk_location

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Receive = Callable[[ReceiveLocation], Any]


@pytest.fixture
def small_splits(session: SparkSession) -> Iterator[None]:
    session.conf.set("spark.sql.files.maxPartitionBytes", "4096")
    yield
    session.conf.unset("spark.sql.files.maxPartitionBytes")


@pytest.fixture
def receive(session: SparkSession, login: Login, tmp_path: Path, claim: ClaimFiles) -> Receive:
    """Claim the files of a location and publish them."""

    def receive_now(location: ReceiveLocation) -> Any:
        claim(location)
        running = RunningBulkLocation(session, location, login=login, home=tmp_path)
        running._is_served_here.set()
        while running._publish() == 0.0:
            pass
        running.supervise()
        running.stop()
        if running.problem is not None:
            raise running.problem
        return running.meter.counts

    return receive_now


def csv(first: int, count: int) -> bytes:
    return b"".join(b"%d,EU,%d.50,%d\n" % (n, n, n % 7) for n in range(first, first + count))


def bodies(box: Box) -> list[Any]:
    return [json.loads(body) for body in box.bodies()]


def bodies_of_good_rows(box: Box) -> list[Any]:
    parts = [part for part in box.parts() if part.content_type == "application/json"]
    return [json.loads(part.body) for part in parts if part.body is not None and part.body.startswith(b"{")]


@pytest.mark.usefixtures("small_splits")
def test_a_file_is_read_in_splits_and_every_row_is_a_message(box: Box, folder: Path, receive: Receive) -> None:
    box.add_port("Europe", "Region == 'EU' and Priority > 3")
    box.add_port("Everything", "exists(Total)")
    location = add_bulk_location(box, folder, options={"header": True})
    (folder / "day [1] 100%.csv").write_bytes(b"id,region,total,priority\n" + csv(0, 2_000))
    counts = receive(location)
    assert {name: counts[name] for name in ("files", "rows", "published", "bad", "suspended")} == {
        "files": 1,
        "rows": 2_000,
        "published": 2_000,
        "bad": 0,
        "suspended": 0,
    }
    found = bodies(box)
    assert sorted(body["id"] for body in found) == list(range(2_000))
    assert found[0].keys() == {"id", "region", "total", "priority"}
    assert box.queued() == {"Everything": 2_000, "Europe": sum(n % 7 > 3 for n in range(2_000))}
    starts = {message.stored_context["written"]["Postroom#SplitStart"] for message in box.messages()}
    assert len(starts) > 5
    assert not [path for path in folder.rglob("*") if path.is_file()]
    assert (box.count("file claims"), box.count("splits")) == (0, 0)


def parquet(path: Path, count: int) -> None:
    pq.write_table(
        pa.table(
            {
                "id": pa.array(range(count), pa.int64()),
                "region": ["EU"] * count,
                "total": pa.array([Decimal(n) for n in range(count)], pa.decimal128(12, 2)),
                "priority": pa.array([1] * count, pa.int32()),
            }
        ),
        path,
        row_group_size=50,
    )


def test_rows_of_every_format_are_published(box: Box, folder: Path, receive: Receive) -> None:
    box.add_port("Everything", "exists(BTS.ReceivePortName)")
    rows = [b'{"id": %d, "region": "EU", "total": 1.5, "priority": 1}' % n for n in range(100)]
    elements = b"".join(b"<order><id>%d</id><region>EU</region><total>2.5</total></order>" % n for n in range(100))
    made: dict[str, tuple[dict[str, Any], Callable[[Path], object]]] = {
        "json": ({}, lambda path: path.write_bytes(b"\n".join(rows))),
        "xml": ({"options": {"rowTag": "order"}}, lambda path: path.write_bytes(b"<all>" + elements + b"</all>")),
        "parquet": ({}, lambda path: parquet(path, 100)),
        "text": (
            {"schema": None, "pipeline": pipelines.Rows(promote={Region: "value"})},
            lambda path: path.write_bytes(b"\n".join(b"EU %d" % n for n in range(100))),
        ),
        "binaryFile": (
            {"schema": None, "pipeline": pipelines.Rows()},
            lambda path: path.write_bytes(bytes(300_000)),
        ),
    }
    for format, (settings, write) in made.items():
        location = add_bulk_location(box, folder / format, format=format, name=format, **settings)
        (folder / format).mkdir()
        write(folder / format / f"a.{format}")
        before = box.count("messages")
        receive(location)
        assert box.count("messages") - before == (1 if format == "binaryFile" else 100), format
    largest = max(box.parts(), key=lambda part: part.size)
    assert (largest.content_type, largest.size, largest.body) == ("application/octet-stream", 300_000, None)
    assert b"".join(box.fragments()) == bytes(300_000)
    written = [json.loads(part.body or b"") for part in box.parts() if part.content_type == "application/json"]
    assert len(written) == 300
    assert sorted(row["total"] for row in written if row["id"] == 7) == [1.5, 2.5, 7.0]
    lines = {part.body for part in box.parts() if part.content_type == "application/octet-stream" and part.body}
    assert lines == {b"EU %d" % n for n in range(100)}
    assert box.suspended() == []


def test_bad_rows_are_suspended_with_their_text(box: Box, folder: Path, receive: Receive) -> None:
    box.add_port("Everything", "exists(Total)")
    location = add_bulk_location(box, folder, pipeline=pipelines.Rows(promote=PROMOTE, body="csv"))
    bad = [b"17,EU", b"18,EU,12,1,more", b"nineteen,EU,12,1", b"%d,%s,12,1" % (20, b"x" * 300)]
    (folder / "mixed.csv").write_bytes(csv(0, 10) + b"\n".join(bad) + b"\n" + csv(100, 5))
    counts = receive(location)
    assert (counts["rows"], counts["bad"], counts["published"], counts["suspended"]) == (19, 4, 15, 4)
    assert [code for code, _ in box.suspended()] == ["PIPELINE"] * 4
    assert sorted(row.body or b"" for row in box.suspended_rows()) == sorted(bad)


@pytest.mark.usefixtures("small_splits")
def test_the_reason_of_a_bad_row_names_the_line_the_file_and_the_column(
    box: Box, folder: Path, receive: Receive
) -> None:
    """The lines are counted from the start of the file, in every split, with header, blank lines and comments."""
    box.add_port("Everything", "exists(Total)")
    options = {"header": True, "sep": ";", "comment": "#", "encoding": "ISO-8859-1"}
    location = add_bulk_location(box, folder, options=options)
    lines = [b"id;region;total;priority", b"", b"# comment", *csv(0, 1_000).replace(b",", b";").splitlines()]
    bad = {
        3: (b"17;EU", "It has 2 values, but the schema has 4 columns (id, region, total, priority)."),
        400: (b"M\xfcnchen;EU;12;1", "The column 'id' is bigint, but has 'München'."),
        700: (b'1;"a;12;1', 'A value starts with ", and the closing " is missing.'),
        990: (
            b"1;EU;x;99999999999",
            "The column 'total' is decimal(12,2), but has 'x'. The column 'priority' is int, but has '99999999999'.",
        ),
        # It is valid for Spark, but not for the property.
        995: (b"1;%s;+1;1" % (b"x" * 300), "It cannot be the value of a str property. It is '%s'." % ("x" * 100)),
    }
    for index, (line, _) in bad.items():
        lines[index] = line
    (folder / "big.csv").write_bytes(b"\r\n".join(lines))
    counts = receive(location)
    assert (counts["rows"], counts["bad"], counts["published"]) == (1_000, 5, 995)
    found = [(row.body or b"", row.error_description) for row in box.suspended_rows()]
    said = {bytes(body): description.split("\n") for body, description in found}
    assert {line: said[line][:2] for line, _ in bad.values()} == {
        line: [
            f"Line {index + 1} of big.csv"
            + (": Orders.Region cannot be promoted from 'region'." if index == 995 else " does not fit the schema."),
            why,
        ]
        for index, (line, why) in bad.items()
    }
    assert said[b"17;EU"][2] == "Resume the instance with the corrected line, or terminate it."


def test_bad_rows_of_json_and_xml_are_explained(box: Box, folder: Path, receive: Receive) -> None:
    box.add_port("Everything", "exists(BTS.ReceivePortName)")
    good = b'{"id": 1, "region": "EU", "total": 1.5, "priority": 1}'
    json_lines = [good, b"", b"[%b,%b]" % (good, good), b'{"id": "x", "region": "EU"}', b'{"id": 1', good]
    expected = {
        "json": [
            ("Line 4 of a.json does not fit the schema.", "The column 'id' is bigint, but has '\"x\"'."),
            ("Line 5 of a.json does not fit the schema.", "It is not valid JSON: "),
        ],
        "xml": [("Row 2 of a.xml does not fit the schema.", "The column 'id' is bigint, but has 'x'.")],
    }
    made = {
        "json": b"\n".join(json_lines),
        "xml": b"<all><order><id>1</id></order>\n<order><id>x</id></order></all>",
    }
    for format, content in made.items():
        options = {"rowTag": "order"} if format == "xml" else {}
        location = add_bulk_location(box, folder / format, format=format, name=format, options=options)
        (folder / format).mkdir()
        (folder / format / f"a.{format}").write_bytes(content)
        receive(location)
        found = [row.error_description for row in box.suspended_rows() if row.service_id == location.location_id]
        for description, (what, why) in zip(found, expected[format], strict=True):
            first, second, *_ = description.split("\n")
            assert (first, second[: len(why)]) == (what, why)
    assert (b"<order><id>x</id></order>", "Row 2 of a.xml does not fit the schema.") in suspended_bodies(box)


def suspended_bodies(box: Box) -> list[tuple[bytes, str]]:
    found = [(row.body or b"", row.error_description) for row in box.suspended_rows()]
    return sorted((body, said.split("\n")[0]) for body, said in found)


@pytest.mark.usefixtures("small_splits")
def test_rows_that_cannot_be_decoded_are_suspended_with_their_bytes(box: Box, folder: Path, receive: Receive) -> None:
    """They are found in every split. A row that really contains U+FFFD is valid."""
    box.add_port("Everything", "exists(Total)")
    rows = [b"%d,%s,%d.50,%d" % (n, b"M\xfcnchen" if n % 97 == 0 else b"EU", n, n % 7) for n in range(1_000)]
    rows[5] = "5,really \ufffd,5.50,5".encode()
    rows[6] = b"6,EU,no num\xfcber,5"
    location = add_bulk_location(box, folder, options={"header": True})
    content = b"id,region,total,priority\r\n\r\n" + b"\r\n".join(rows) + b"\r\n"
    (folder / "latin.csv").write_bytes(content)
    counts = receive(location)
    destroyed = [row for row in rows if b"\xfc" in row]
    assert (counts["rows"], counts["bad"], counts["published"]) == (1_000, len(destroyed), 1_000 - len(destroyed))
    kept = suspended_bodies(box)
    assert [body for body, _ in kept] == sorted(destroyed)
    assert all("is not UTF-8" in said for _, said in kept)
    assert "really \ufffd" in [body["region"] for body in bodies_of_good_rows(box)]


def test_json_and_text_that_are_not_utf8_are_suspended(box: Box, folder: Path, receive: Receive) -> None:
    box.add_port("Everything", "exists(BTS.ReceivePortName)")
    line = b'{"id": 1, "region": "M\xfcnchen", "total": 1.5, "priority": 1}'
    json_lines = add_bulk_location(box, folder / "json", format="json", name="json")
    (folder / "json").mkdir()
    (folder / "json" / "a.json").write_bytes(line + b"\n" + line.replace(b"\xfc", "ü".encode()))
    assert receive(json_lines)["published"] == 1
    text: dict[str, Any] = {"schema": None, "format": "text"}
    promoting = add_bulk_location(
        box, folder / "text", name="text", pipeline=pipelines.Rows(promote={Region: "value"}), **text
    )
    as_they_are = add_bulk_location(box, folder / "raw", name="raw", pipeline=pipelines.Rows(), **text)
    for location, published in ((promoting, 1), (as_they_are, 2)):
        (folder / location.name).mkdir()
        (folder / location.name / "a.txt").write_bytes(b"M\xfcnchen\nM\xc3\xbcnchen\n")
        assert receive(location)["published"] == published
    assert [body for body, _ in suspended_bodies(box)] == [b"M\xfcnchen", line]


def test_too_many_bad_rows_stop_the_location_until_the_limit_is_raised(
    box: Box, folder: Path, receive: Receive
) -> None:
    box.add_port("Everything", "exists(Total)")
    location = add_bulk_location(box, folder, bad_rows=2)
    (folder / "bad.csv").write_bytes(csv(0, 10) + b"what\nis\nthis\n")
    with pytest.raises(StateError, match=r"3 of 13 rows are bad, and bad_rows allows 2"):
        receive(location)
    assert box.count("messages") == 0
    [listed] = list_locations(box.connection)
    assert listed.problems == ["bad.csv: 3 of 13 rows are bad, and bad_rows allows 2"]
    box.merge_locations(adapter={"bad_rows": 3}, pipeline={"body": "csv"})
    box.change_file_claims(state=FileClaimState.CLAIMED, problem=None)
    [location] = read_receive_locations(box.connection)
    assert receive(location)["published"] == 10
    # The limit is the new one, the pipeline that of the stored read plan.
    assert {body["region"] for body in bodies_of_good_rows(box)} == {"EU"}
    assert box.count("file claims") == 0


def test_an_unreadable_file_is_quarantined_and_the_others_are_published(
    box: Box, folder: Path, receive: Receive, caplog: pytest.LogCaptureFixture
) -> None:
    box.add_port("Everything", "exists(Total)")
    location = add_bulk_location(box, folder, format="parquet")
    parquet(folder / "good.parquet", 30)
    (folder / "broken.parquet").write_bytes(b"PAR1 what is this PAR1")
    counts = receive(location)
    # Whether the job that failed has published it, or the one after that.
    assert (counts["files"], counts["rows"], counts["published"]) == (1, 30, 30)
    assert box.queued() == {"Everything": 30}
    assert "broken.parquet could not be received" in caplog.text
    assert box.file_claims()[0].state == 5
    assert "broken.parquet" in (box.file_claims()[0].problem or "")
