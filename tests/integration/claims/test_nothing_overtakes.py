"""An ordered location whose claims are taken back while it claims more: nothing overtakes what was there (RCV-25).

Files are named in the order in which they come, so that the stated order is that of the names, whatever happens."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from postroom import pipelines
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import connect
from postroom.spark import executor
from postroom.spark.executor import drop_executor
from postroom.spark.intake import claim as claims
from postroom.spark.intake.claim import Claim, ClaimState
from postroom.spark.intake.claim_folders import ClaimFolders
from postroom.spark.intake.claims import Claimer
from postroom.spark.intake.location_lock import ORDER_LOCK
from postroom.spark.login import Login
from postroom.spark.receive.sources import ClaimedFiles
from postroom.spark.receive.task import ReceiveTask
from tests.integration.claims.conftest import MovedClock
from tests.integration.claims.test_ordered import published
from tests.support.box import PROMOTE, Box
from tests.support.file_location import add_file_location
from tests.support.waiting import wait_until

#: Documents in a file, and in a chunk: the first transaction publishes some of a file that is held back.
DOCUMENTS, CHUNK = 5, 2

#: Where something may happen in the middle of a scan: each function, before it is called.
MOMENTS = ["begin", "sync", "complete_in_order", "places", "unfinished"]


OpenStreet = Callable[..., "Street"]


@dataclass
class Street:
    """An ordered location with its claimer and the task of its stream; what Spark would do is done when it is said."""

    box: Box
    location: ReceiveLocation
    folder: Path
    home: Path
    clock: MovedClock = field(default_factory=MovedClock)
    held_back: bool = False
    dropped: list[str] = field(default_factory=list)
    given: list[Claim] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.login = Login(url=self.box.url, user=self.box.host().role_name)
        self.task = ReceiveTask(
            source=ClaimedFiles(location=self.location, home=self.home), login=self.login, paced=True
        )
        self.start()

    def start(self) -> None:
        self._connection = connect(self.box.url, user=self.box.host().role_name)
        self.claimer = Claimer(self._connection, self.location, self.home, self.clock)

    def close(self) -> None:
        self._connection.close()
        drop_executor(self.login)

    def claimed(self) -> list[Claim]:
        return claims.between(self.box.connection, self.location.location_id, 0, 1 << 60)

    def states(self) -> dict[str, ClaimState]:
        rows = self.box.connection.execute(
            "SELECT name, state FROM file_claims WHERE location_id = %s", (self.location.location_id,)
        )
        return {name: ClaimState(state) for name, state in rows}

    # -- what may happen ---------------------------------------------------------------------------------------

    def drop(self) -> None:
        name = f"{self.location.name}-{len(self.dropped):03}"
        self.dropped.append(name)
        (self.folder / name).write_text(f'{{"region": "{name}"}}\n' * DOCUMENTS)

    def scan(self) -> None:
        self.clock.move(1)
        self.claimer.scan()

    def scan_late(self) -> None:
        self.clock.move(3)
        self.claimer.scan()

    def receive(self) -> None:
        self.given = self.claimed()
        self.task.receive(self.given)

    def receive_again(self) -> None:
        """A task that was given up runs on."""
        self.task.receive(self.given)

    def receive_held_back(self) -> None:
        self.held_back = True
        try:
            self.receive()
        finally:
            self.held_back = False

    def write(self) -> None:
        """To the last file that the stream has."""
        with suppress(FileNotFoundError):
            for claim in self.claimed()[-1:]:
                os.utime(claim.path, ns=(claim.modified_ns + 1, claim.modified_ns + 1))

    def restart(self) -> None:
        self._connection.close()
        self.start()

    def finish(self) -> None:
        for _ in range(6):
            self.scan_late()
            self.receive()

    def published(self) -> list[str]:
        return [region for region in published(self.box) if region.startswith(f"{self.location.name}-")]

    def in_order(self) -> list[str]:
        return [name for name in self.dropped for _ in range(DOCUMENTS)]


@pytest.fixture
def open_street(box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenStreet]:
    streets: list[Street] = []
    numbers = count()
    box.add_port("Everything", "exists(Region)")

    def pace(*_: object) -> Callable[[], bool]:
        return lambda: not streets[-1].held_back

    monkeypatch.setattr(executor, "Pace", pace)
    monkeypatch.setattr("postroom.agent.receiving.chunks.CHUNK_ROWS", CHUNK)
    monkeypatch.setattr("postroom.agent.receiving.receiver.CHUNK_ROWS", CHUNK)

    def open_one(settle: float = 1.0) -> Street:
        name = f"street{next(numbers)}"
        folder = tmp_path / name
        folder.mkdir()
        lines = pipelines.JsonLines(promote=PROMOTE)
        location = add_file_location(box, folder, name=name, settle=settle, pipeline=lines, order="name")
        streets.append(Street(box=box, location=location, folder=folder, home=tmp_path))
        return streets[-1]

    yield open_one
    for street in streets:
        street.close()


@pytest.fixture
def street(open_street: OpenStreet) -> Street:
    return open_street()


def interrupt(monkeypatch: pytest.MonkeyPatch, moment: str, happens: Callable[[], object]) -> None:
    """Lets something happen right before the claimer calls a function, once."""
    module: Any = claims if hasattr(claims, moment) else ClaimFolders
    function = getattr(module, moment)

    def interrupted(*given: Any) -> Any:
        monkeypatch.setattr(module, moment, function)
        happens()
        return function(*given)

    monkeypatch.setattr(module, moment, interrupted)


@pytest.mark.parametrize("moment", ["begin", "sync", "complete_in_order"])
def test_a_file_that_is_taken_back_while_the_next_is_claimed_stays_before_it(
    street: Street, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    street.drop()
    street.scan()
    street.scan()
    street.drop()
    street.scan()
    interrupt(monkeypatch, moment, street.receive_held_back)
    street.scan()
    assert street.claimed() == []
    street.finish()
    assert street.published() == street.in_order()
    assert street.states() == {}


def test_while_it_is_held_back_again_and_again_files_go_on_arriving(street: Street) -> None:
    for _ in range(8):
        street.drop()
        street.scan()
        street.receive_held_back()
    assert 0 < len(street.published()) < len(street.in_order())
    street.finish()
    assert street.published() == street.in_order()


def test_a_file_that_is_held_back_goes_before_new_ones_whatever_their_names(
    street: Street, monkeypatch: pytest.MonkeyPatch
) -> None:
    street.drop()
    street.scan()
    street.scan()
    street.dropped.append("street0-")
    (street.folder / "street0-").write_text('{"region": "street0-"}\n' * DOCUMENTS)
    street.scan()
    interrupt(monkeypatch, "complete_in_order", street.receive_held_back)
    street.scan()
    street.finish()
    assert street.published() == street.in_order()


def test_what_is_numbered_again_first_is_taken_back_before_what_waits_longer(street: Street) -> None:
    street.drop()
    street.drop()
    street.scan()
    street.scan()
    street.write()
    street.receive_held_back()
    street.clock.move(3)
    street.claimer.scan()
    late = street.folder / ".postroom" / str(street.location.location_id)
    second = next(path for path in late.iterdir() if path.name.endswith("001"))
    os.utime(second, ns=(1, 1))
    street.scan()
    assert [claim.name for claim in street.claimed()] == street.dropped[:1], "the second has not settled"
    street.receive_held_back()
    street.finish()
    assert street.published() == street.in_order()


def test_numbering_waits_for_whoever_is_taking_back(street: Street) -> None:
    street.drop()
    street.scan()
    street.scan()
    street.drop()
    street.scan()
    street.clock.move(1)
    with connect(street.box.url, user=street.box.host().role_name) as task, task.transaction():
        claims.settle_all_again(task, street.location.location_id)
        scanning = threading.Thread(target=street.claimer.scan)
        scanning.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = "
        wait_until(lambda: street.box.one(f"{waiting} {ORDER_LOCK}") == 1, what="the claimer waits for the order")
    scanning.join()
    assert street.claimed() == []
    assert set(street.states().values()) == {ClaimState.CLAIMING}
    street.finish()
    assert street.published() == street.in_order()


STEPS = [
    *(Street.drop, Street.drop, Street.scan, Street.scan_late, Street.receive, Street.receive_again),
    *(Street.receive_held_back, Street.write, Street.restart),
]
HAPPENS = [Street.receive_held_back, Street.drop, Street.receive, Street.receive_again, Street.write]


@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    settle=st.sampled_from([0.0, 1.0]),
    steps=st.lists(
        st.sampled_from(STEPS) | st.tuples(st.sampled_from(MOMENTS), st.sampled_from(HAPPENS)), min_size=15, max_size=25
    ),
)
def test_whatever_happens_the_order_is_kept(open_street: OpenStreet, settle: float, steps: list[Any]) -> None:
    street = open_street(settle)
    street.drop()
    for step in steps:
        with pytest.MonkeyPatch.context() as monkeypatch:
            if isinstance(step, tuple):
                moment, happens = step
                street.drop()
                interrupt(monkeypatch, moment, partial(happens, street))
                street.scan()
            else:
                step(street)
        assert street.published() == street.in_order()[: len(street.published())]
    street.finish()
    assert street.published() == street.in_order()
    assert street.states() == {}
