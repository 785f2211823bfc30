"""A file that ends its worker is found after a few attempts, and suspended with its bytes; the others are published."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import psycopg
import pytest

from postroom.agent.receiving import Receiver
from postroom.messagebox.configuration import ReceiveLocation
from postroom.spark.careful import MOST_BEGUN
from postroom.spark.intake import claim as claims
from postroom.spark.intake.claim import Claim
from postroom.spark.intake.claims import Claimer
from postroom.spark.receive.task import ReceiveTask
from tests.integration.claims.conftest import MovedClock
from tests.integration.claims.test_claiming import scan_until_settled
from tests.support.box import Box
from tests.support.file_location import add_file_location

Claimed = Callable[[], list[Claim]]
POISON = b'{"region": "poison"}'


class WorkerDied(BaseException):
    """Stands for the end of a process: nothing catches it, and nothing is written down after it."""


@pytest.fixture(params=[None, "name"], ids=["in any order", "in order"])
def location(box: Box, folder: Path, request: pytest.FixtureRequest) -> ReceiveLocation:
    box.add_port("Everything", "exists(Region)")
    return add_file_location(box, folder, pattern="*.json", settle=1.0, order=request.param)


@pytest.fixture
def fail_with(monkeypatch: pytest.MonkeyPatch) -> Callable[[BaseException | None], None]:
    """What becomes of whoever receives the poison."""
    raised: list[BaseException | None] = [None]
    receive = Receiver.receive

    def poisoned(self: Receiver, location: ReceiveLocation, given: Any, **settings: Any) -> object:
        if raised[0] is not None and "poison" in str(given):
            raise raised[0]
        return receive(self, location, given, **settings)

    monkeypatch.setattr(Receiver, "receive", poisoned)
    return lambda error: raised.__setitem__(0, error)


def drop(claimer: Claimer, clock: MovedClock, folder: Path) -> None:
    for name in ("a", "poison", "z"):
        (folder / f"{name}.json").write_text(f'{{"region": "{name}"}}')
    assert scan_until_settled(claimer, clock) == 3


def begun(box: Box) -> int | None:
    found = box.one("SELECT begun FROM claims WHERE name = 'poison.json'")
    return None if found is None else int(found)


def test_what_ended_two_workers_by_itself_is_suspended_and_the_others_are_published(
    box: Box,
    location: ReceiveLocation,
    claimer: Claimer,
    clock: MovedClock,
    folder: Path,
    task: ReceiveTask,
    claimed: Claimed,
    fail_with: Callable[[BaseException | None], None],
) -> None:
    drop(claimer, clock, folder)
    fail_with(WorkerDied())
    with pytest.raises(WorkerDied):
        task.receive(claimed())
    assert begun(box) == 0, "a first attempt writes nothing down"
    for attempt in range(1, MOST_BEGUN + 1):
        with pytest.raises(WorkerDied):
            task.receive(claimed(), careful=True)
        assert begun(box) == attempt
    received = task.receive(claimed(), careful=True)
    assert sum(one.suspended for one in received) == 1
    assert box.queued() == {"Everything": 2}
    # Those after it in an ordered location are published, and it cannot come back before them.
    assert box.suspended() == [("PIPELINE", not location.is_ordered)]
    assert "The worker that received it died" in box.one("SELECT error_description FROM suspended_queue")
    assert POISON in [body for (body,) in box.connection.execute("SELECT body FROM parts")]
    assert box.count("claims") == 0
    assert not [path for path in folder.rglob("*") if path.is_file()]


def test_an_attempt_that_the_worker_survives_does_not_count(
    box: Box,
    claimer: Claimer,
    clock: MovedClock,
    folder: Path,
    task: ReceiveTask,
    claimed: Claimed,
    fail_with: Callable[[BaseException | None], None],
) -> None:
    drop(claimer, clock, folder)
    fail_with(psycopg.OperationalError("the connection is lost"))
    for _ in range(2 * MOST_BEGUN):
        with pytest.raises(psycopg.OperationalError):
            task.receive(claimed(), careful=True)
    assert begun(box) == 0
    # Without memory the next one may not survive.
    fail_with(MemoryError())
    with pytest.raises(MemoryError):
        task.receive(claimed(), careful=True)
    assert begun(box) == 1
    fail_with(None)
    task.receive(claimed(), careful=True)
    assert box.queued() == {"Everything": 3}
    assert box.suspended() == []


def test_notes_from_before_a_restart_of_postgresql_do_not_count(
    box: Box, claimer: Claimer, clock: MovedClock, folder: Path, claimed: Claimed
) -> None:
    drop(claimer, clock, folder)
    poison = claimed()[1].interchange_id
    assert [claims.note_begun(box.connection, poison) for _ in range(MOST_BEGUN)] == [1, 2]
    box.connection.execute("UPDATE claims SET begun_under = begun_under - interval '1 hour'")
    assert [claims.note_begun(box.connection, poison) for _ in range(MOST_BEGUN)] == [1, 2]
