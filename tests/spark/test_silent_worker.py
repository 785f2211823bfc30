"""A message that keeps the interpreter of its worker to itself is found and suspended, and the others go on."""

from __future__ import annotations

from pathlib import Path
from runpy import run_path

from postroom import pipelines
from postroom.pipelines import Receive
from tests.spark.conftest import Claim, StartStream
from tests.support.box import PROMOTE, Box
from tests.support.file_location import add_file_location
from tests.support.waiting import wait_until

#: No thread of the process runs while this is matched, and the time that it takes doubles with every letter.
SILENT = """
import re

from postroom.message import Message


def check(message: Message) -> None:
    re.search(rb"(a+)+$", message.data)
"""
POISON = b'{"region": "EU", "text": "%s!"}' % (b"a" * 60)


def test_a_file_that_silences_its_worker_is_suspended_with_a_reason_and_the_stream_goes_on(
    box: Box, folder: Path, claim: Claim, start_stream: StartStream, tmp_path: Path
) -> None:
    """Nobody can give up such a call: the alarm clock of the worker rings, three times, and then it is not begun."""
    box.add_port("Europe", "Region == 'EU'")
    location = add_file_location(box, folder, pipeline=pipeline(tmp_path))
    for number in range(4):
        (folder / f"{number}.json").write_bytes(order(number))
    (folder / "poison.json").write_bytes(POISON)
    assert claim(location) == 5
    query = start_stream(location, grace=4.0)

    def all_done() -> bool:
        assert query.isActive, query.exception()
        return box.count("claims") == 0

    wait_until(all_done, what="an empty table of claims")
    assert query.isActive, "the same query, which has never failed"
    assert box.queued() == {"Europe": 4}
    assert box.suspended() == [("PIPELINE", True)]
    reason = box.one("SELECT error_description FROM suspended_queue")
    assert "The worker that received it died, whenever it was tried." in reason
    assert "if it does not answer for longer than the pipeline allows" in reason
    bodies = [body for (body,) in box.connection.execute("SELECT body FROM parts")]
    assert sorted(bodies) == sorted([POISON, *map(order, range(4))])
    # What comes afterwards is received as ever.
    (folder / "next.json").write_bytes(order(5))
    claim(location)
    wait_until(lambda: box.queued() == {"Europe": 5}, what="the next message")


def pipeline(folder: Path) -> Receive:
    (folder / "silent.py").write_text(SILENT)
    check = run_path(str(folder / "silent.py"), run_name="silent")["check"]
    disassemble = [pipelines.Json(promote=PROMOTE)]
    return Receive(disassemble=disassemble, validate=[check], seconds=1.0).packed(folder)


def order(number: int) -> bytes:
    return b'{"region": "EU", "priority": %d}' % number
