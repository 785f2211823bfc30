from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.messagebox.connection import Login, connect
from postroom.messagebox.intake.file_claims import FileClaim
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.spark.receive.task import SparkReceiveTask
from postroom.spark.worker import close_worker
from tests.support.box import Box
from tests.support.file_location import add_file_location, read_numbered_claims

MakeClaimer = Callable[..., FileClaimer]


class MovedClock:
    """A clock that only a test moves: the time of day and the monotonic time."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self._elapsed = 0.0

    def __call__(self) -> datetime:
        return self.now

    def monotonic(self) -> float:
        return self._elapsed

    def move(self, seconds: float) -> None:
        """Let time pass."""
        self._elapsed += seconds
        self.step(seconds)

    def step(self, seconds: float) -> None:
        """Set the time of day without letting time pass."""
        self.now += timedelta(seconds=seconds)


@pytest.fixture
def clock() -> MovedClock:
    return MovedClock()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The watched folder, with a space in its path."""
    folder = tmp_path / "drop box" / "in"
    folder.mkdir(parents=True)
    return folder


@pytest.fixture
def location(box: Box, folder: Path) -> ReceiveLocation:
    box.add_port("Everything", "exists(Region)")
    return add_file_location(box, folder, pattern="*.json", settle=1.0)


@pytest.fixture
def make_claimer(box: Box, location: ReceiveLocation, clock: MovedClock, tmp_path: Path) -> Iterator[MakeClaimer]:
    """Return a function that makes claimers, each with its own session as the host."""
    with ExitStack() as stack:

        def make(other: ReceiveLocation | None = None, **settings: Any) -> FileClaimer:
            connection = stack.enter_context(connect(box.url, user=box.host().role_name))
            return FileClaimer(connection, other or location, tmp_path, clock, monotonic=clock.monotonic, **settings)

        yield make


@pytest.fixture
def claimer(make_claimer: MakeClaimer) -> FileClaimer:
    return make_claimer()


@pytest.fixture
def task(box: Box, location: ReceiveLocation, tmp_path: Path) -> Iterator[SparkReceiveTask]:
    """Return the receive task. Tests run it without Spark."""
    login = Login(url=box.url, user=box.host().role_name)
    yield SparkReceiveTask(location=location, home=tmp_path, login=login)
    close_worker(login)


@pytest.fixture
def claimed(box: Box, location: ReceiveLocation) -> Callable[[], list[FileClaim]]:
    """Return a function that reads the numbered claims, as the stream would."""
    return lambda: read_numbered_claims(box.connection, location)


@dataclass(frozen=True, kw_only=True)
class WatchedLocation:
    """A location that watches a folder, with its claimer and its task. Tests run both without Spark."""

    folder: Path
    clock: MovedClock
    claimer: FileClaimer
    task: SparkReceiveTask
    claimed: Callable[[], list[FileClaim]]

    def claim_all(self) -> None:
        """Let the files in the folder settle, and claim them."""
        self.claimer.scan()
        self.clock.move(3)
        self.claimer.scan()

    def receive(self) -> list[ReceiveResult]:
        """Receive all claimed files, as one task of the stream."""
        return self.task.receive(self.claimed())

    def run(self, *, times: int = 6, claimer: FileClaimer | None = None) -> None:
        """Scan and receive several times."""
        for _ in range(times):
            (claimer or self.claimer).scan()
            self.clock.move(3)
            self.receive()


@pytest.fixture
def watched(
    folder: Path,
    clock: MovedClock,
    claimer: FileClaimer,
    task: SparkReceiveTask,
    claimed: Callable[[], list[FileClaim]],
) -> WatchedLocation:
    return WatchedLocation(folder=folder, clock=clock, claimer=claimer, task=task, claimed=claimed)
