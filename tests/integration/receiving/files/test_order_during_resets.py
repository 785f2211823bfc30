"""An ordered location keeps its order if file claims are reset while it claims more files (RCV-25).

Files are named in the order in which they arrive, so the expected order is that of the names."""

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
from postroom.messagebox.connection import Login, connect
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.file_claims import FileClaim, FileClaimState
from postroom.messagebox.intake.location_lock import ORDER_LOCK
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving import task as receive_task
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.receiving.files.watched_folder import ClaimFolders
from postroom.spark.receive.task import SparkReceiveTask
from postroom.spark.worker import close_worker
from tests.integration.receiving.files.conftest import MovedClock
from tests.integration.receiving.files.test_ordered_locations import list_published
from tests.support.box import PROMOTE, Box
from tests.support.file_location import add_file_location, read_numbered_claims
from tests.support.waiting import wait_until

#: Documents in a file, and in a chunk. The first transaction of a throttled file publishes one chunk.
DOCUMENTS, CHUNK = 5, 2

#: The functions of a scan before which another step may happen.
INTERRUPTION_POINTS = [
    "insert_file_claims",
    "sync",
    "number_claims_in_order",
    "read_first_numbers",
    "read_unfinished_claims",
]


OpenLocation = Callable[..., "OrderedLocation"]


@dataclass
class OrderedLocation:
    """An ordered location with its claimer and its receive task. A test runs each step that Spark would run."""

    box: Box
    location: ReceiveLocation
    folder: Path
    home: Path
    clock: MovedClock = field(default_factory=MovedClock)
    throttled: bool = False
    dropped: list[str] = field(default_factory=list)
    received: list[FileClaim] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.login = Login(url=self.box.url, user=self.box.host().role_name)
        self.task = SparkReceiveTask(location=self.location, home=self.home, login=self.login, paced=True)
        self.start()

    def start(self) -> None:
        self._connection = connect(self.box.url, user=self.box.host().role_name)
        self.claimer = FileClaimer(
            self._connection, self.location, self.home, self.clock, monotonic=self.clock.monotonic
        )

    def close(self) -> None:
        self._connection.close()
        close_worker(self.login)

    def claimed(self) -> list[FileClaim]:
        return read_numbered_claims(self.box.connection, self.location)

    def states(self) -> dict[str, FileClaimState]:
        claims = self.box.file_claims()
        rows = [(one.name, one.state) for one in claims if one.location_id == self.location.location_id]
        return {name: FileClaimState(state) for name, state in rows}

    # -- steps ---------------------------------------------------------------------------------------

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
        self.received = self.claimed()
        self.task.receive(self.received)

    def receive_again(self) -> None:
        """Repeat the last task, as an abandoned attempt does."""
        self.task.receive(self.received)

    def receive_throttled(self) -> None:
        self.throttled = True
        try:
            self.receive()
        finally:
            self.throttled = False

    def write(self) -> None:
        """Change the last numbered file."""
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

    def list_published(self) -> list[str]:
        return [region for region in list_published(self.box) if region.startswith(f"{self.location.name}-")]

    def expected(self) -> list[str]:
        return [name for name in self.dropped for _ in range(DOCUMENTS)]


@pytest.fixture
def open_location(box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenLocation]:
    opened: list[OrderedLocation] = []
    numbers = count()
    box.add_port("Everything", "exists(Region)")

    def pace(*_: object) -> Callable[[], bool]:
        return lambda: not opened[-1].throttled

    monkeypatch.setattr(receive_task, "Pace", pace)
    monkeypatch.setattr("postroom.agent.streaming.interchange.CHUNK_ROWS", CHUNK)
    monkeypatch.setattr("postroom.agent.streaming.receiver.CHUNK_ROWS", CHUNK)

    def open_next(settle: float = 1.0) -> OrderedLocation:
        name = f"location{next(numbers)}"
        folder = tmp_path / name
        folder.mkdir()
        lines = pipelines.JsonLines(promote=PROMOTE)
        location = add_file_location(box, folder, name=name, settle=settle, pipeline=lines, order="name")
        opened.append(OrderedLocation(box=box, location=location, folder=folder, home=tmp_path))
        return opened[-1]

    yield open_next
    for drop_box in opened:
        drop_box.close()


@pytest.fixture
def drop_box(open_location: OpenLocation) -> OrderedLocation:
    return open_location()


def interrupt(monkeypatch: pytest.MonkeyPatch, function_name: str, step: Callable[[], object]) -> None:
    """Run a step before the claimer calls a function, once."""
    module: Any = file_claims if hasattr(file_claims, function_name) else ClaimFolders
    function = getattr(module, function_name)

    def interrupted(*given: Any) -> Any:
        monkeypatch.setattr(module, function_name, function)
        step()
        return function(*given)

    monkeypatch.setattr(module, function_name, interrupted)


@pytest.mark.parametrize("function_name", ["insert_file_claims", "sync", "number_claims_in_order"])
def test_a_file_that_is_reset_while_the_next_is_claimed_stays_before_it(
    drop_box: OrderedLocation, monkeypatch: pytest.MonkeyPatch, function_name: str
) -> None:
    drop_box.drop()
    drop_box.scan()
    drop_box.scan()
    drop_box.drop()
    drop_box.scan()
    interrupt(monkeypatch, function_name, drop_box.receive_throttled)
    drop_box.scan()
    assert drop_box.claimed() == []
    drop_box.finish()
    assert drop_box.list_published() == drop_box.expected()
    assert drop_box.states() == {}


def test_files_that_arrive_while_tasks_are_throttled_keep_their_order(drop_box: OrderedLocation) -> None:
    for _ in range(8):
        drop_box.drop()
        drop_box.scan()
        drop_box.receive_throttled()
    assert 0 < len(drop_box.list_published()) < len(drop_box.expected())
    drop_box.finish()
    assert drop_box.list_published() == drop_box.expected()


def test_a_reset_file_comes_before_new_files_with_lower_names(
    drop_box: OrderedLocation, monkeypatch: pytest.MonkeyPatch
) -> None:
    drop_box.drop()
    drop_box.scan()
    drop_box.scan()
    drop_box.dropped.append("location0-")
    (drop_box.folder / "location0-").write_text('{"region": "location0-"}\n' * DOCUMENTS)
    drop_box.scan()
    interrupt(monkeypatch, "number_claims_in_order", drop_box.receive_throttled)
    drop_box.scan()
    drop_box.finish()
    assert drop_box.list_published() == drop_box.expected()


def test_a_file_that_is_reset_twice_comes_before_a_file_that_still_settles(drop_box: OrderedLocation) -> None:
    drop_box.drop()
    drop_box.drop()
    drop_box.scan()
    drop_box.scan()
    drop_box.write()
    drop_box.receive_throttled()
    drop_box.clock.move(3)
    drop_box.claimer.scan()
    late = drop_box.folder / ".postroom" / str(drop_box.location.location_id)
    second = next(path for path in late.iterdir() if path.name.endswith("001"))
    os.utime(second, ns=(1, 1))
    drop_box.scan()
    assert [claim.name for claim in drop_box.claimed()] == drop_box.dropped[:1], "the second file has not settled"
    drop_box.receive_throttled()
    drop_box.finish()
    assert drop_box.list_published() == drop_box.expected()


def test_numbering_waits_for_a_transaction_that_resets_claims(drop_box: OrderedLocation) -> None:
    drop_box.drop()
    drop_box.scan()
    drop_box.scan()
    drop_box.drop()
    drop_box.scan()
    drop_box.clock.move(1)
    with connect(drop_box.box.url, user=drop_box.box.host().role_name) as task, task.transaction():
        file_claims.reset_all_claims(task, drop_box.location.location_id)
        scanning = threading.Thread(target=drop_box.claimer.scan)
        scanning.start()
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND classid = "
        wait_until(lambda: drop_box.box.one(f"{waiting} {ORDER_LOCK}") == 1, what="the claimer to wait for the lock")
    scanning.join()
    assert drop_box.claimed() == []
    assert set(drop_box.states().values()) == {FileClaimState.CLAIMING}
    drop_box.finish()
    assert drop_box.list_published() == drop_box.expected()


STEPS = [
    OrderedLocation.drop,
    OrderedLocation.drop,
    OrderedLocation.scan,
    OrderedLocation.scan_late,
    OrderedLocation.receive,
    OrderedLocation.receive_again,
    OrderedLocation.receive_throttled,
    OrderedLocation.write,
    OrderedLocation.restart,
]
INTERRUPTIONS = [
    OrderedLocation.receive_throttled,
    OrderedLocation.drop,
    OrderedLocation.receive,
    OrderedLocation.receive_again,
    OrderedLocation.write,
]
INTERRUPTED_SCAN = st.tuples(st.sampled_from(INTERRUPTION_POINTS), st.sampled_from(INTERRUPTIONS))


@settings(
    max_examples=12,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(
    settle=st.sampled_from([0.0, 1.0]),
    steps=st.lists(st.sampled_from(STEPS) | INTERRUPTED_SCAN, min_size=15, max_size=25),
)
def test_any_sequence_of_steps_keeps_the_order(open_location: OpenLocation, settle: float, steps: list[Any]) -> None:
    drop_box = open_location(settle)
    drop_box.drop()
    for step in steps:
        with pytest.MonkeyPatch.context() as monkeypatch:
            if isinstance(step, tuple):
                function_name, interruption = step
                drop_box.drop()
                interrupt(monkeypatch, function_name, partial(interruption, drop_box))
                drop_box.scan()
            else:
                step(drop_box)
        assert drop_box.list_published() == drop_box.expected()[: len(drop_box.list_published())]
    drop_box.finish()
    assert drop_box.list_published() == drop_box.expected()
    assert drop_box.states() == {}
