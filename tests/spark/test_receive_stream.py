"""Spark tasks publish claimed files as messages (MSG-07, RCV-12, PUB-14)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from runpy import run_path
from typing import TYPE_CHECKING, Any

import pytest

from postroom import pipelines
from postroom.message import FRAGMENT_SIZE
from postroom.system_properties import BTS
from tests.spark.conftest import ClaimFiles, StartStream
from tests.support.box import PROMOTE, Box
from tests.support.file_location import add_file_location
from tests.support.replayed_batch import store_claims
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


def wait_for_messages(box: Box, count: int, query: StreamingQuery) -> None:
    def arrived() -> bool:
        assert query.isActive, query.exception()
        return box.count("messages") >= count

    wait_until(arrived, what=f"{count} messages")
    assert box.count("messages") == count


def order(number: int, region: str = "EU") -> bytes:
    return b'{"region": "%s", "priority": %d}' % (region.encode(), number)


@pytest.fixture
def files(folder: Path) -> Iterator[list[Path]]:
    yield (made := [folder / f"{number}.json" for number in range(20)])
    assert not [path for path in made if path.exists()]


def test_several_tasks_publish_files_and_remove_them(
    box: Box, folder: Path, claim: ClaimFiles, start_stream: StartStream, files: list[Path]
) -> None:
    box.add_port("Europe", "Region == 'EU'")
    location = add_file_location(box, folder)
    for number, path in enumerate(files):
        path.write_bytes(order(number))
    assert claim(location) == 20
    query = start_stream(location)
    wait_for_messages(box, 20, query)
    wait_until(lambda: box.count("file claims") == 0, what="an empty table of claims")
    assert box.queued() == {"Europe": 20}
    assert not [path for path in folder.rglob("*") if path.is_file()]
    ids = [message.context[BTS.InterchangeID] for message in box.messages()]
    assert len(set(ids)) == 20
    # Both tasks have published, each over its own connection.
    assert box.one("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postroom receive'") >= 2


def test_one_task_publishes_an_ordered_location_in_order(
    box: Box, folder: Path, claim: ClaimFiles, start_stream: StartStream
) -> None:
    box.add_port("Europe", "Region == 'EU'")
    location = add_file_location(box, folder, order="name")
    for number in reversed(range(10, 30)):
        (folder / f"{number}.json").write_bytes(order(number))
    assert claim(location) == 20
    wait_for_messages(box, 20, start_stream(location))
    assert _bodies_as_queued(box) == [order(number) for number in range(10, 30)]


def _bodies_as_queued(box: Box) -> list[bytes]:
    return [row.body or b"" for row in box.queued_rows()]


def test_five_files_with_the_same_name_are_five_messages(
    box: Box, folder: Path, claim: ClaimFiles, start_stream: StartStream
) -> None:
    box.add_port("Europe", "Region == 'EU'")
    location = add_file_location(box, folder)
    query = start_stream(location)
    for number in range(5):
        (folder / "daily.json").write_bytes(order(number))
        assert claim(location) == 1
    wait_for_messages(box, 5, query)
    assert sorted(body for body in box.bodies()) == [order(n) for n in range(5)]


def test_a_large_body_travels_by_reference(
    box: Box, folder: Path, claim: ClaimFiles, start_stream: StartStream
) -> None:
    box.add_port("Everything", "BTS.ReceivePortName == 'dropIn'")
    location = add_file_location(box, folder, pipeline=pipelines.PassThrough())
    content = bytes(range(256)) * (40 * FRAGMENT_SIZE // 256)
    (folder / "large.bin").write_bytes(content)
    claim(location)
    query = start_stream(location)
    wait_for_messages(box, 1, query)
    assert box.parts()[0].body is None
    assert b"".join(box.fragments()) == content


def test_workers_split_an_array_of_documents(
    box: Box, folder: Path, claim: ClaimFiles, start_stream: StartStream
) -> None:
    box.add_port("Europe", "Region == 'EU'")
    location = add_file_location(box, folder, pipeline=pipelines.Json(promote=PROMOTE, split="orders"))
    large = b'{"region": "EU", "text": "%s"}' % (b"x" * FRAGMENT_SIZE)
    (folder / "orders.json").write_bytes(b'{"orders": [%s, %s , %s]}' % (order(1), large, order(3)))
    (folder / "empty.json").write_bytes(b'{"orders": []}')
    claim(location)
    wait_for_messages(box, 3, start_stream(location))
    wait_until(lambda: box.count("file claims") == 0, what="an empty table of claims")
    assert sorted(body for body in box.bodies() if body) == [order(1), order(3)]
    assert b"".join(box.fragments()) == large


COMPONENTS = """
from postroom.message import Message
from postroom.pipelines import components


class Reversed(components.Decoder):
    def decode(self, message: Message) -> bytes:
        return message.data[::-1]


def has_region(message: Message) -> None:
    if b"region" not in message.data:
        raise ValueError("the order has no region")
"""


def test_custom_components_run_in_the_workers(
    box: Box, folder: Path, tmp_path: Path, claim: ClaimFiles, start_stream: StartStream
) -> None:
    """The workers get them with the definition."""
    path = tmp_path / "own_components.py"
    path.write_text(COMPONENTS)
    own: Any = run_path(str(path), run_name="own_components")
    pipeline = pipelines.Receive(
        decode=[own["Reversed"]()], disassemble=[pipelines.Json(promote=PROMOTE)], validate=[own["has_region"]]
    ).pack(tmp_path)
    path.unlink()
    box.add_port("Europe", "Region == 'EU'")
    location = add_file_location(box, folder, pipeline=pipeline)
    (folder / "good.json").write_bytes(order(1)[::-1])
    (folder / "bad.json").write_bytes(b"}{")
    claim(location)
    wait_for_messages(box, 2, start_stream(location))
    assert sorted(body for body in box.bodies()) == sorted([order(1), b"}{"])
    assert "has_region: the order has no region" in box.read_error()


@pytest.mark.parametrize("routed", [False, True])
def test_bad_files_are_suspended_or_routed_and_counted_in_the_tally(
    box: Box, folder: Path, claim: ClaimFiles, start_stream: StartStream, routed: bool
) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'")
    location = add_file_location(box, folder, pipeline=pipelines.JsonLines(promote=PROMOTE), route_failures=routed)
    (folder / "mixed.jsonl").write_bytes(order(1) + b"\n{broken\n" + order(2, "NOWHERE") + b"\n" + order(3))
    claim(location)
    query = start_stream(location)

    def read_tallies() -> list[Any]:
        tallies = [p.observedMetrics["tally"] for p in query.recentProgress if p.observedMetrics]
        return [tally for tally in tallies if tally["files"]]

    [tally] = wait_until(read_tallies, what="a tally")
    assert (tally["files"], tally["published"], tally["empty"]) == (1, 2, 0)
    assert (tally["suspended"], tally["routed"]) == ((0, 2) if routed else (2, 0))
    assert box.queued() == ({"Europe": 2, "Errors": 2} if routed else {"Europe": 2})
    reports = ["ROUTING"]
    assert sorted(code for code, _ in box.suspended()) == (reports if routed else ["PIPELINE", "ROUTING", *reports])
    assert box.count("file claims") == 0


def test_workers_keep_their_connections_and_learn_of_new_subscriptions(
    box: Box, folder: Path, claim: ClaimFiles, start_stream: StartStream
) -> None:
    sessions = "SELECT array_agg(pid ORDER BY pid) FROM pg_stat_activity WHERE application_name = 'postroom receive'"
    box.add_port("Europe", "Region == 'EU'")
    location = add_file_location(box, folder)
    query = start_stream(location)
    seen = set()
    for number in range(1, 13):
        if number == 7:
            box.add_port("Audit", "exists(Region)")  # the routing table in the workers' memory learns of it
        (folder / "a.json").write_bytes(order(number))
        claim(location)
        wait_for_messages(box, number, query)
        seen |= set(box.one(sessions))
    assert box.queued() == {"Europe": 12, "Audit": 6}
    assert len(seen) <= 4  # a source and a task for each of two cores share the workers


def test_a_repeated_batch_publishes_nothing_twice(
    box: Box, folder: Path, claim: ClaimFiles, start_stream: StartStream
) -> None:
    box.add_port("Europe", "Region == 'EU'")
    location = add_file_location(box, folder)
    for number in range(6):
        (folder / f"{number}.json").write_bytes(order(number))
    claim(location)
    restore = store_claims(box)
    first = start_stream(location)
    wait_until(lambda: box.count("file claims") == 0, what="the end of the batch")
    first.stop()
    restore()
    again = start_stream(location)
    wait_until(lambda: box.count("file claims") == 0, what="the end of the repeated batch")
    again.stop()
    assert again.exception() is None
    assert box.queued() == {"Europe": 6}
    assert not any(path.is_file() for path in folder.rglob("*"))


def test_nothing_is_lost_or_repeated_when_the_database_drops_all_sessions(
    box: Box, folder: Path, claim: ClaimFiles, start_stream: StartStream
) -> None:
    box.add_port("Europe", "Region == 'EU'")
    location = add_file_location(box, folder)
    query = start_stream(location)
    drop = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = ANY (%s)"
    for number in range(6):
        (folder / "a.json").write_bytes(order(number))
        claim(location)
        box.connection.execute(drop, (["postroom receive", "postroom stream"],))
        wait_for_messages(box, number + 1, query)
    assert box.queued() == {"Europe": 6}


def test_workers_run_the_python_of_the_environment(session: SparkSession) -> None:
    from postroom.spark.session import without_pandas_warning

    def read_python(batches: Iterator[object]) -> Iterator[object]:
        import sys

        import pyarrow

        for _ in batches:
            yield pyarrow.RecordBatch.from_pydict({"python": [sys.executable]})

    with without_pandas_warning():
        [row] = session.range(1, numPartitions=1).mapInArrow(read_python, "python string").collect()
    assert row.python == sys.executable


DEADLY = """
import os

from postroom.message import Message


def check(message: Message) -> None:
    if b"poison" in message.data:
        os._exit(3)
"""


def test_a_file_that_kills_its_worker_is_suspended_and_the_stream_continues(
    box: Box, folder: Path, claim: ClaimFiles, start_stream: StartStream, tmp_path: Path
) -> None:
    """As a crash in a C library does, or an out-of-memory kill."""
    box.add_port("Europe", "Region == 'EU'")
    (tmp_path / "deadly.py").write_text(DEADLY)
    check = run_path(str(tmp_path / "deadly.py"), run_name="deadly")["check"]
    disassemble = [pipelines.Json(promote=PROMOTE)]
    pipeline = pipelines.Receive(disassemble=disassemble, validate=[check]).pack(tmp_path)
    location = add_file_location(box, folder, pipeline=pipeline)
    for number in range(5):
        (folder / f"{number}.json").write_bytes(order(number))
    (folder / "poison.json").write_bytes(order(9, "poison"))
    assert claim(location) == 6
    query = start_stream(location)
    wait_for_messages(box, 6, query)
    wait_until(lambda: box.count("file claims") == 0, what="an empty table of claims")
    assert query.isActive, "the query has never failed"
    assert box.queued() == {"Europe": 5}
    assert box.suspended() == [("PIPELINE", True)]
    assert "The worker that processed it died at every attempt" in box.read_error()
