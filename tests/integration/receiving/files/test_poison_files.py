"""A file that kills its worker is suspended after MAX_ATTEMPTS, with its bytes. The others are published."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.agent.poison_messages import MAX_ATTEMPTS
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import MessageBoxUnavailable
from postroom.messagebox.intake.file_claims import FileClaim
from postroom.messagebox.intake.numbered_interchanges import record_attempt
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.file_claimer import FileClaimer
from tests.integration.receiving.files.conftest import MovedClock, WatchedLocation
from tests.integration.receiving.files.test_file_claimer import scan_until_settled
from tests.support.box import Box
from tests.support.file_location import add_file_location

Claimed = Callable[[], list[FileClaim]]
POISON = b'{"region": "poison"}'


class WorkerDied(BaseException):
    """Simulates the death of a process: no code catches it."""


@pytest.fixture(params=[None, "name"], ids=["in any order", "in order"])
def location(box: Box, folder: Path, request: pytest.FixtureRequest) -> ReceiveLocation:
    box.add_port("Everything", "exists(Region)")
    return add_file_location(box, folder, pattern="*.json", settle=1.0, order=request.param)


@pytest.fixture
def fail_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException | None], None]:
    """Set what happens to the task that receives the poison message."""
    raised: list[BaseException | None] = [None]
    receive = Receiver.receive

    def poisoned(self: Receiver, location: ReceiveLocation, interchanges: Any, **settings: Any) -> object:
        if raised[0] is not None and "poison.json" in str(interchanges):
            raise raised[0]
        return receive(self, location, interchanges, **settings)

    monkeypatch.setattr(Receiver, "receive", poisoned)
    return lambda error: raised.__setitem__(0, error)


def drop(claimer: FileClaimer, clock: MovedClock, folder: Path) -> None:
    for name in ("a", "poison", "z"):
        (folder / f"{name}.json").write_text(f'{{"region": "{name}"}}')
    assert scan_until_settled(claimer, clock) == 3


def attempts_in(box: Box) -> int:
    return sum(box.receive_attempts())


def test_a_poison_file_is_suspended_and_the_others_are_published(
    watched: WatchedLocation, box: Box, location: ReceiveLocation, fail_with: Callable[[BaseException | None], None]
) -> None:
    drop(watched.claimer, watched.clock, watched.folder)
    fail_with(WorkerDied())
    with pytest.raises(WorkerDied):
        watched.receive()
    assert attempts_in(box) == 0, "a first attempt is not recorded"
    for attempt in range(1, MAX_ATTEMPTS + 1):
        with pytest.raises(WorkerDied):
            watched.task.receive(watched.claimed(), isolated=True)
        assert attempts_in(box) == attempt
    received = watched.task.receive(watched.claimed(), isolated=True)
    assert sum(result.suspended for result in received) == 1
    assert box.queued() == {"Everything": 2}
    # In an ordered location it cannot be resumed: later files were published.
    assert box.suspended() == [("PIPELINE", not location.adapter.is_ordered)]
    assert "The worker that processed it died at every attempt" in box.read_error()
    assert POISON in box.bodies()
    assert box.count("file claims") == 0
    assert not [path for path in watched.folder.rglob("*") if path.is_file()]


def test_an_attempt_that_the_worker_survives_is_not_counted(
    watched: WatchedLocation, box: Box, fail_with: Callable[[BaseException | None], None]
) -> None:
    drop(watched.claimer, watched.clock, watched.folder)
    fail_with(MessageBoxUnavailable("the connection is lost"))
    for _ in range(2 * MAX_ATTEMPTS):
        with pytest.raises(MessageBoxUnavailable):
            watched.task.receive(watched.claimed(), isolated=True)
    assert attempts_in(box) == 0
    # The next worker may not survive a lack of memory.
    fail_with(MemoryError())
    with pytest.raises(MemoryError):
        watched.task.receive(watched.claimed(), isolated=True)
    assert attempts_in(box) == 1
    fail_with(None)
    watched.task.receive(watched.claimed(), isolated=True)
    assert box.queued() == {"Everything": 3}
    assert box.suspended() == []


def test_attempts_before_a_restart_of_postgresql_are_not_counted(
    watched: WatchedLocation, box: Box, location: ReceiveLocation
) -> None:
    drop(watched.claimer, watched.clock, watched.folder)
    poison = watched.claimed()[1].interchange_id
    assert [record_attempt(box.connection, location.location_id, poison) for _ in range(MAX_ATTEMPTS)] == [1, 2]
    box.age_attempts(timedelta(hours=1))
    assert [record_attempt(box.connection, location.location_id, poison) for _ in range(MAX_ATTEMPTS)] == [1, 2]


def test_attempts_before_a_change_of_the_file_are_not_counted(
    watched: WatchedLocation, box: Box, location: ReceiveLocation
) -> None:
    drop(watched.claimer, watched.clock, watched.folder)
    poison = watched.claimed()[1]
    for _ in range(MAX_ATTEMPTS):
        record_attempt(box.connection, location.location_id, poison.interchange_id)
    poison.path.write_text('{"region": "corrected"}')
    watched.run()
    assert attempts_in(box) == 0
    assert box.queued() == {"Everything": 3}
    assert box.suspended() == []
