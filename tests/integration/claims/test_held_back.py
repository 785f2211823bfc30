"""While too much waits in the MessageBox, a task ends after a while and its files come again (THR-04, THR-05)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from postroom import Throttling, pipelines
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.streams.throttling import PATIENCE, Pace, store_thresholds
from postroom.spark import executor
from postroom.spark.intake.claim import Claim
from postroom.spark.intake.claims import Claimer
from postroom.spark.receive.task import ReceiveTask
from tests.integration.claims.conftest import MakeClaimer, MovedClock
from tests.integration.claims.test_claiming import scan_until_settled
from tests.integration.claims.test_ordered import published
from tests.support.box import PROMOTE, Box
from tests.support.file_location import add_file_location
from tests.support.load import set_load

Claimed = Callable[[], list[Claim]]


@pytest.fixture(params=[None, "name"], ids=["together", "ordered"])
def location(box: Box, folder: Path, request: pytest.FixtureRequest) -> ReceiveLocation:
    box.add_port("Everything", "exists(Region)")
    store_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=300))
    lines = pipelines.JsonLines(promote=PROMOTE)
    return add_file_location(box, folder, pattern="*.json", settle=1.0, pipeline=lines, order=request.param)


@pytest.fixture
def slept(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """How long tasks waited; it takes no time. Chunks are small."""
    pauses: list[float] = []
    monkeypatch.setattr(executor, "Pace", partial(Pace, sleep=pauses.append))
    monkeypatch.setattr("postroom.agent.receiving.chunks.CHUNK_ROWS", 10)
    monkeypatch.setattr("postroom.agent.receiving.receiver.CHUNK_ROWS", 10)
    return pauses


def test_a_file_comes_again_where_it_was_left(
    box: Box,
    claimer: Claimer,
    clock: MovedClock,
    folder: Path,
    claimed: Claimed,
    task: ReceiveTask,
    slept: list[float],
) -> None:
    task = replace(task, paced=True)
    (folder / "a.json").write_text('{"region": "a"}\n' * 25)
    (folder / "b.json").write_text('{"region": "b"}\n' * 5)
    set_load(box, queued=100)
    scan_until_settled(claimer, clock)
    received = task.receive(claimed())
    assert sum(one.published for one in received) == 10
    assert sum(slept) == pytest.approx(PATIENCE)
    assert claimed() == [], "the core is free, and the stream has nothing more to do"

    scan_until_settled(claimer, clock)
    clock.move(2)
    scan_until_settled(claimer, clock)
    assert [claim.name for claim in claimed()] == ["a.json", "b.json"]
    task.receive(claimed())
    assert published(box) == ["a"] * 20

    set_load(box, queued=0)
    for _ in range(2):
        clock.move(2)
        scan_until_settled(claimer, clock)
    task.receive(claimed())
    assert published(box) == ["a"] * 25 + ["b"] * 5
    assert box.count("file_claims") == 0
    assert not list(claimer.private_folder.iterdir())


def test_once_nothing_is_held_back(
    box: Box,
    make_claimer: MakeClaimer,
    clock: MovedClock,
    folder: Path,
    claimed: Claimed,
    task: ReceiveTask,
    slept: list[float],
) -> None:
    (folder / "a.json").write_text('{"region": "a"}\n' * 25)
    set_load(box, queued=100)
    scan_until_settled(make_claimer(), clock)
    [received] = task.receive(claimed())
    assert (received.published, received.unfinished, slept) == (25, False, [])
