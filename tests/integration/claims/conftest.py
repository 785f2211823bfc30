from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import connect
from postroom.spark.executor import drop_executor
from postroom.spark.intake import claim as claims
from postroom.spark.intake.claim import Claim
from postroom.spark.intake.claims import Claimer
from postroom.spark.login import Login
from postroom.spark.receive.sources import ClaimedFiles
from postroom.spark.receive.task import ReceiveTask
from tests.support.box import Box
from tests.support.file_location import add_file_location

MakeClaimer = Callable[..., Claimer]


class MovedClock:
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now

    def move(self, seconds: float) -> None:
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
    """Claimers, each with a session of its own as the host."""
    with ExitStack() as stack:

        def make(other: ReceiveLocation | None = None, **settings: int) -> Claimer:
            connection = stack.enter_context(connect(box.url, user=box.host().role_name))
            return Claimer(connection, other or location, tmp_path, clock, **settings)

        yield make


@pytest.fixture
def claimer(make_claimer: MakeClaimer) -> Claimer:
    return make_claimer()


@pytest.fixture
def task(box: Box, location: ReceiveLocation, tmp_path: Path) -> Iterator[ReceiveTask]:
    """What Spark would run, run here."""
    login = Login(url=box.url, user=box.host().role_name)
    yield ReceiveTask(source=ClaimedFiles(location=location, home=tmp_path), login=login)
    drop_executor(login)


@pytest.fixture
def claimed(box: Box, location: ReceiveLocation) -> Callable[[], list[Claim]]:
    """What the stream would be given."""
    return lambda: claims.between(box.connection, location.location_id, 0, 1 << 60)
