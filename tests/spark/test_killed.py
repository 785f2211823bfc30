"""The process killed with -9: nothing stays behind, and after a restart everything is published once (PUB-14)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

from postroom import pipelines
from postroom.private_folder import PARENT
from tests.support.box import PROMOTE, Box
from tests.support.file_location import add_file_location
from tests.support.waiting import wait_until

FILES, LINES = 24, 1000

_PIPELINE = """
import sys
from pathlib import Path
from postroom.spark.pipeline_process import run_pipeline
run_pipeline(sys.argv[1], "default", Path(sys.argv[2]), master="local[2]", as_role=True)
"""


@contextmanager
def pipeline(box: Box, home: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A pipeline process, from a folder in which a file has the name of a module that Python needs."""
    (home / "queue.py").write_text("raise SystemExit('the wrong module')")
    log = home / "pipeline.log"
    with log.open("ab") as said:
        command = [sys.executable, "-P", "-c", _PIPELINE, box.url, str(home)]
        process = subprocess.Popen(command, cwd=home, stdout=said, stderr=subprocess.STDOUT)
    try:
        yield process
    finally:
        family = family_of(process)
        with suppress(ProcessLookupError):
            process.kill()
        process.wait()
        # However a test ends, nothing of it is left.
        for member in family:
            with suppress(psutil.NoSuchProcess):
                member.kill()
        psutil.wait_procs(family, 10)


def family_of(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    try:
        return list(psutil.Process(process.pid).children(recursive=True))
    except psutil.NoSuchProcess:
        return []


def wait_for_end(family: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(family, 30)
    assert alive == []


def scratch_of(process: subprocess.Popen[bytes]) -> Path:
    return PARENT / f"postroom-{os.geteuid()}" / f"spark-{process.pid}"


def drop_orders(folder: Path) -> set[bytes]:
    numbers = range(FILES * LINES)
    orders = [b'{"region": "EU", "priority": %d}' % number for number in numbers]
    for file in range(FILES):
        (folder / f"{file}.jsonl").write_bytes(b"\n".join(orders[file * LINES : (file + 1) * LINES]))
    return set(orders)


@pytest.mark.timeout(300)
def test_a_killed_driver_leaves_no_jvm_and_its_successor_publishes_the_rest_once(
    box: Box, folder: Path, tmp_path: Path
) -> None:
    box.add_port("Europe", "Region == 'EU'")
    add_file_location(box, folder, pipeline=pipelines.JsonLines(promote=PROMOTE))
    with pipeline(box, tmp_path) as first:
        (folder / "warm-up.jsonl").write_bytes(b'{"region": "EU"}')
        wait_until(lambda: box.count("receipts") == 1, 120, what="a warm pipeline")
        orders = drop_orders(folder)
        wait_until(lambda: box.count("receipts") > 1, 60, what="the first of many publishes")
        family = family_of(first)
        assert any(member.name() == "java" for member in family)
        first.kill()
        wait_for_end(family)
    published = box.count("spool")
    with pipeline(box, tmp_path) as second:
        wait_until(lambda: box.count("spool") > FILES * LINES, 120, what="every order")
        wait_until(lambda: box.count("claims") == 0, 30, what="an empty table of claims")
        family = family_of(second)
        second.send_signal(signal.SIGTERM)
        assert second.wait(60) == 0, (tmp_path / "pipeline.log").read_text()
        wait_for_end(family)
    assert not scratch_of(first).exists()
    assert not scratch_of(second).exists()
    assert box.count("spool") == FILES * LINES + 1, f"{published} had been published before"
    bodies = [body for (body,) in box.connection.execute("SELECT body FROM parts")]
    assert len(bodies) == FILES * LINES + 1
    assert set(bodies) == orders | {b'{"region": "EU"}'}
    assert not list(folder.rglob("*.jsonl"))


def test_a_killed_jvm_ends_the_process_with_an_error(box: Box, folder: Path, tmp_path: Path) -> None:
    add_file_location(box, folder)
    with pipeline(box, tmp_path) as process:
        sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postroom stream'"
        wait_until(lambda: box.one(sessions) == 1, 120, what="a stream")
        family = family_of(process)
        [jvm] = [member for member in family if member.name() == "java"]
        jvm.kill()
        assert process.wait(60) == 1
        assert "Spark has died" in (tmp_path / "pipeline.log").read_text()
        wait_for_end(family)
    assert not scratch_of(process).exists()
