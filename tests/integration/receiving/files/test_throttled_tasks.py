"""While receiving is throttled, a task ends early and its files are received again later (THR-04, THR-05)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from postroom import Throttling, pipelines
from postroom.messagebox.intake.file_claims import FileClaim
from postroom.messagebox.throttling.pace import MAX_WAIT, Pace
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving import task as receive_task
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.spark.receive.task import SparkReceiveTask
from tests.integration.receiving.files.conftest import MakeClaimer, MovedClock
from tests.integration.receiving.files.test_file_claimer import scan_until_settled
from tests.integration.receiving.files.test_ordered_locations import list_published
from tests.support.box import PROMOTE, Box
from tests.support.file_location import add_file_location
from tests.support.host_settings import set_thresholds
from tests.support.simulated_load import set_load

Claimed = Callable[[], list[FileClaim]]


@pytest.fixture(params=[None, "name"], ids=["unordered", "ordered"])
def location(box: Box, folder: Path, request: pytest.FixtureRequest) -> ReceiveLocation:
    box.add_port("Everything", "exists(Region)")
    set_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=300))
    lines = pipelines.JsonLines(promote=PROMOTE)
    return add_file_location(box, folder, pattern="*.json", settle=1.0, pipeline=lines, order=request.param)


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses of tasks, which take no time in the test. Chunks are small."""
    recorded: list[float] = []
    monkeypatch.setattr(receive_task, "Pace", partial(Pace, sleep=recorded.append))
    monkeypatch.setattr("postroom.agent.streaming.interchange.CHUNK_ROWS", 10)
    monkeypatch.setattr("postroom.agent.streaming.receiver.CHUNK_ROWS", 10)
    return recorded


def test_an_interrupted_file_continues_with_its_next_document(
    box: Box,
    claimer: FileClaimer,
    clock: MovedClock,
    folder: Path,
    claimed: Claimed,
    task: SparkReceiveTask,
    pauses: list[float],
) -> None:
    task = replace(task, paced=True)
    (folder / "a.json").write_text('{"region": "a"}\n' * 25)
    (folder / "b.json").write_text('{"region": "b"}\n' * 5)
    set_load(box, queued=100)
    scan_until_settled(claimer, clock)
    received = task.receive(claimed())
    assert sum(one.published for one in received) == 10
    assert sum(pauses) == pytest.approx(MAX_WAIT)
    assert claimed() == [], "the task has ended, and the stream has no claims left"

    scan_until_settled(claimer, clock)
    clock.move(2)
    scan_until_settled(claimer, clock)
    assert [claim.name for claim in claimed()] == ["a.json", "b.json"]
    task.receive(claimed())
    assert list_published(box) == ["a"] * 20

    set_load(box, queued=0)
    for _ in range(2):
        clock.move(2)
        scan_until_settled(claimer, clock)
    task.receive(claimed())
    assert list_published(box) == ["a"] * 25 + ["b"] * 5
    assert box.count("file claims") == 0
    assert not list(claimer.private_folder.iterdir())


def test_a_task_of_a_single_run_is_not_throttled(
    box: Box,
    make_claimer: MakeClaimer,
    clock: MovedClock,
    folder: Path,
    claimed: Claimed,
    task: SparkReceiveTask,
    pauses: list[float],
) -> None:
    (folder / "a.json").write_text('{"region": "a"}\n' * 25)
    set_load(box, queued=100)
    scan_until_settled(make_claimer(), clock)
    [received] = task.receive(claimed())
    assert (received.published, received.unfinished, pauses) == (25, False, [])
