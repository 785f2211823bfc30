"""A small file that comes alone is received by the process that has claimed it, and not by the stream."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.agent.streaming.receiver import Receiver
from postroom.messagebox.connection import Connection
from postroom.messagebox.intake.file_claims import FileClaim
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files import file_receive_adapter
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.receiving.files.lone_files import LoneFiles
from postroom.receiving.task import Worker
from tests.integration.receiving.files.conftest import MakeClaimer, MovedClock, WatchedLocation
from tests.support.box import Box
from tests.support.file_location import add_file_location

ORDER = b'{"region": "EU"}'


class RecordedFiles:
    """Receives as a pipeline process does, or leaves the file to the stream."""

    def __init__(self, connection: Connection, location: ReceiveLocation, home: Path) -> None:
        receiver = Receiver(connection, RoutingTable())
        worker = Worker(connection=connection, receiver=receiver, connect=lambda: connection)
        self._files = LoneFiles(worker, location, home, is_throttled=lambda: not self.receives, report=self._report)
        self.received: list[ReceiveResult] = []
        self.names: list[str] = []
        self.end_process: Callable[[FileClaim], None] | None = None
        self.receives = True

    def __call__(self, claim: FileClaim) -> bool:
        self.names.append(claim.name)
        if self.end_process is not None:
            self.end_process(claim)
            raise KeyboardInterrupt
        return self._files.receive(claim)

    def _report(self, received: Sequence[ReceiveResult]) -> None:
        self.received += received


@pytest.fixture
def lone_files(box: Box, location: ReceiveLocation, tmp_path: Path) -> RecordedFiles:
    return RecordedFiles(box.connection, location, tmp_path)


@pytest.fixture
def claimer(make_claimer: MakeClaimer, lone_files: RecordedFiles) -> FileClaimer:
    return make_claimer(receive_alone=lone_files)


def test_a_lone_file_is_published_and_removed_by_the_scan_that_claims_it(
    box: Box, watched: WatchedLocation, lone_files: RecordedFiles
) -> None:
    (watched.folder / "a.json").write_bytes(ORDER)
    watched.claim_all()
    assert lone_files.names == ["a.json"]
    assert [result.published for result in lone_files.received] == [1]
    assert box.queued() == {"Everything": 1}
    assert (box.count("file claims"), watched.claimed()) == (0, [])
    assert list(watched.claimer.private_folder.iterdir()) == []


def test_several_files_are_left_to_the_stream(watched: WatchedLocation, lone_files: RecordedFiles) -> None:
    for name in ("a.json", "b.json"):
        (watched.folder / name).write_bytes(ORDER)
    watched.claim_all()
    assert lone_files.names == []
    (watched.folder / "c.json").write_bytes(ORDER)
    watched.claim_all()
    assert lone_files.names == [], "two files wait for the stream"
    assert len(watched.claimed()) == 3


def test_a_large_file_is_left_to_the_stream(watched: WatchedLocation, lone_files: RecordedFiles) -> None:
    (watched.folder / "a.json").write_bytes(b" " * 16_384 + ORDER)
    watched.claim_all()
    assert (lone_files.names, len(watched.claimed())) == ([], 1)


def test_a_file_of_an_ordered_location_is_left_to_the_stream(
    box: Box, folder: Path, make_claimer: MakeClaimer, clock: MovedClock, lone_files: RecordedFiles
) -> None:
    ordered = add_file_location(box, folder, name="ordered", pattern="*.json", settle=1.0, order="name")
    claimer = make_claimer(ordered, receive_alone=lone_files)
    (folder / "a.json").write_bytes(ORDER)
    claimer.scan()
    clock.move(3)
    assert claimer.scan().claimed == 1
    assert lone_files.names == []


def test_a_file_that_is_not_received_alone_is_numbered_for_the_stream(
    box: Box, watched: WatchedLocation, lone_files: RecordedFiles
) -> None:
    lone_files.receives = False
    (watched.folder / "a.json").write_bytes(ORDER)
    watched.claim_all()
    assert (lone_files.names, len(watched.claimed())) == (["a.json"], 1)
    watched.receive()
    assert box.queued() == {"Everything": 1}


def test_a_file_that_ends_the_process_is_received_by_the_stream_after_the_restart(
    box: Box, watched: WatchedLocation, make_claimer: MakeClaimer, lone_files: RecordedFiles
) -> None:
    lone_files.end_process = lambda claim: None
    (watched.folder / "a.json").write_bytes(ORDER)
    with pytest.raises(KeyboardInterrupt):
        watched.claim_all()
    watched.claimer.release()
    restarted = make_claimer(receive_alone=lone_files)
    watched.run(claimer=restarted)
    assert lone_files.names == ["a.json"], "it is not tried again"
    assert box.queued() == {"Everything": 1}
    assert box.count("file claims") == 0


def test_a_file_that_is_published_before_the_process_ends_is_only_removed_after_the_restart(
    box: Box,
    watched: WatchedLocation,
    make_claimer: MakeClaimer,
    lone_files: RecordedFiles,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def end_process(*_: object) -> None:
        raise KeyboardInterrupt

    (watched.folder / "a.json").write_bytes(ORDER)
    with monkeypatch.context() as patched:
        patched.setattr(file_receive_adapter, "finish_files", end_process)
        with pytest.raises(KeyboardInterrupt):
            watched.claim_all()
    assert box.queued() == {"Everything": 1}
    watched.claimer.release()
    watched.run(claimer=make_claimer(receive_alone=lone_files))
    assert box.queued() == {"Everything": 1}
    assert box.count("file claims") == 0
    assert list(watched.claimer.private_folder.iterdir()) == []


def test_a_file_with_a_second_name_in_the_archive_is_received_after_the_restart(
    box: Box, watched: WatchedLocation, make_claimer: MakeClaimer, lone_files: RecordedFiles, tmp_path: Path
) -> None:
    """Archiving links the file before it removes the first name. The file is not taken for one of another account."""
    lone_files.end_process = lambda claim: os.link(claim.path, tmp_path / "archived.json")
    (watched.folder / "a.json").write_bytes(ORDER)
    with pytest.raises(KeyboardInterrupt):
        watched.claim_all()
    watched.claimer.release()
    watched.run(claimer=make_claimer(receive_alone=lone_files))
    assert box.queued() == {"Everything": 1}
    assert box.count("file claims") == 0
