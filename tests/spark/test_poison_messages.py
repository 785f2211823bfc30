"""A message that hangs the interpreter of its worker is suspended. The others are published."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

from postroom import pipelines
from postroom.pipelines import Receive
from tests.spark.conftest import ClaimFiles, StartStream
from tests.support.box import PROMOTE, Box
from tests.support.file_location import add_file_location
from tests.support.waiting import wait_until

#: No thread of the process runs during the match, which takes twice as long with every letter.
SILENT = """
import re

from postroom.message import Message


def check(message: Message) -> None:
    re.search(rb"(a+)+$", message.data)
"""
POISON = b'{"region": "EU", "text": "%s!"}' % (b"a" * 60)


def test_a_file_that_hangs_its_worker_is_suspended_and_the_stream_continues(
    box: Box, folder: Path, claim: ClaimFiles, start_stream: StartStream, tmp_path: Path
) -> None:
    """The watchdog kills three workers: the first attempt, and MAX_ATTEMPTS alone. Then the file is suspended."""
    box.add_port("Europe", "Region == 'EU'")
    location = add_file_location(box, folder, pipeline=pipeline(tmp_path))
    for number in range(4):
        (folder / f"{number}.json").write_bytes(order(number))
    (folder / "poison.json").write_bytes(POISON)
    assert claim(location) == 5
    query = start_stream(location, grace=1.0)

    def all_done() -> bool:
        assert query.isActive, query.exception()
        return box.count("file claims") == 0

    wait_until(all_done, what="an empty table of claims")
    assert query.isActive, "the query has never failed"
    assert box.queued() == {"Europe": 4}
    assert box.suspended() == [("PIPELINE", True)]
    reason = box.read_error()
    assert "The worker that processed it died at every attempt." in reason
    assert "if it does not respond for longer than the time limit of the pipeline" in reason
    bodies = box.bodies()
    assert sorted(bodies) == sorted([POISON, *map(order, range(4))])
    # Later files are received.
    (folder / "next.json").write_bytes(order(5))
    claim(location)
    wait_until(lambda: box.queued() == {"Europe": 5}, what="the next message")


def pipeline(folder: Path) -> Receive:
    (folder / "silent.py").write_text(SILENT)
    check = run_path(str(folder / "silent.py"), run_name="silent")["check"]
    disassemble = [pipelines.Json(promote=PROMOTE)]
    return Receive(disassemble=disassemble, validate=[check], seconds=4.0).pack(folder)


def order(number: int) -> bytes:
    return b'{"region": "EU", "priority": %d}' % number
