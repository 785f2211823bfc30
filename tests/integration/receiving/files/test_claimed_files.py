"""A source file is removed or archived only after its messages are committed, and only if it has not changed."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from postroom import pipelines
from postroom.agent.streaming.receiver import Receiver
from postroom.messagebox.connection import Connection, Login, connect
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.file_claims import FileClaim, FileClaimState
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.claimed_files import finish_files
from postroom.spark.receive.task import SparkReceiveTask
from postroom.spark.worker import close_worker
from tests.integration.receiving.files.conftest import MakeClaimer, MovedClock, WatchedLocation
from tests.support.box import Box
from tests.support.file_location import add_file_location, read_numbered_claims
from tests.support.file_systems import folder_on_another_file_system, refuse_links_into
from tests.support.waiting import wait_until

Claimed = Callable[[], list[FileClaim]]
ORDER = b'{"region": "EU"}'


def find_problem(box: Box, state: FileClaimState) -> str:
    """Return the problem of the only file in a state."""
    [problem] = [claim.problem for claim in box.file_claims() if claim.state == state]
    return problem or ""


def states(box: Box) -> list[int]:
    return [claim.state for claim in box.file_claims()]


def test_a_published_file_and_its_claim_are_removed(watched: WatchedLocation, box: Box) -> None:
    (watched.folder / "a.json").write_bytes(ORDER)
    watched.claim_all()
    [claim] = watched.claimed()
    [received] = watched.task.receive([claim])
    assert (received.interchange_id, received.published, received.suspended) == (claim.interchange_id, 1, 0)
    assert not claim.path.exists()
    assert box.count("file claims") == 0
    [message] = box.messages()
    assert str(watched.folder / "a.json") in message.stored_context["written"].values()


def test_a_file_that_cannot_be_read_as_a_message_is_suspended_and_removed(watched: WatchedLocation, box: Box) -> None:
    (watched.folder / "a.json").write_bytes(b"{broken")
    watched.claim_all()
    [received] = watched.receive()
    assert (received.published, received.suspended) == (0, 1)
    assert box.suspended() == [("PIPELINE", True)]
    assert box.parts()[0].body == b"{broken"
    assert box.count("file claims") == 0


def test_a_file_that_grew_before_it_was_read_settles_again(watched: WatchedLocation, box: Box) -> None:
    sender = (watched.folder / "a.json").open("wb")
    sender.write(b'{"region": ')
    sender.flush()
    watched.claim_all()
    sender.write(b'"EU"}')
    sender.close()
    assert watched.receive() == []
    assert watched.claimed() == []
    watched.clock.move(3)
    watched.claimer.scan()
    watched.clock.move(3)
    assert watched.claimer.scan().claimed == 1
    watched.receive()
    assert box.parts()[0].body == ORDER


def test_a_file_that_grew_after_it_was_published_is_kept_and_reported(
    watched: WatchedLocation, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    sender = (watched.folder / "a.json").open("wb")
    sender.write(ORDER)
    sender.flush()
    watched.claim_all()
    receive = Receiver.receive

    def grow(*arguments: Any, **settings: Any) -> object:
        answer = receive(*arguments, **settings)
        sender.write(b" too late")
        sender.close()
        return answer

    monkeypatch.setattr(Receiver, "receive", grow)
    watched.receive()
    assert box.queued() == {"Everything": 1}
    [kept] = (watched.folder / ".postroom" / "kept").iterdir()
    assert kept.read_bytes() == ORDER + b" too late"
    assert str(kept) in find_problem(box, FileClaimState.PUBLISHED)
    watched.clock.move(3)
    assert str(kept) in watched.claimer.scan().problems[0]
    assert kept.exists()
    kept.unlink()  # an operator has removed it
    watched.clock.move(3)
    assert watched.claimer.scan().problems == ()
    assert box.count("file claims") == 0


def test_a_missing_file_is_reported_until_the_next_start(
    watched: WatchedLocation, make_claimer: MakeClaimer, box: Box
) -> None:
    (watched.folder / "a.json").write_bytes(ORDER)
    watched.claim_all()
    [claim] = watched.claimed()
    claim.path.unlink()
    assert watched.task.receive([claim]) == []
    assert states(box) == [4]
    watched.clock.move(3)
    assert "is missing" in watched.claimer.scan().problems[0]
    watched.claimer.release()
    assert make_claimer().scan().active
    assert box.count("file claims") == 0


def test_a_missing_file_that_is_restored_is_received(watched: WatchedLocation, box: Box) -> None:
    (watched.folder / "a.json").write_bytes(ORDER)
    watched.claim_all()
    [claim] = watched.claimed()
    claim.path.rename(watched.folder / ".elsewhere")
    watched.task.receive([claim])
    (watched.folder / ".elsewhere").rename(claim.path)
    for _ in range(4):
        watched.clock.move(3)
        watched.claimer.scan()
    watched.receive()
    assert box.queued() == {"Everything": 1}


def fail_on_poison(patched: pytest.MonkeyPatch, how: str) -> None:
    """Make the receiver fail for one of the files."""
    real = getattr(Receiver, how)

    def receive_or_fail(self: Receiver, location: ReceiveLocation, given: Any, *more: Any, **settings: Any) -> object:
        if "poison" in str(given):
            raise ZeroDivisionError("a defect in the agent")
        return real(self, location, given, *more, **settings)

    patched.setattr(Receiver, how, receive_or_fail)


def test_a_file_that_cannot_be_received_is_suspended_and_the_others_are_published(
    watched: WatchedLocation, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.json", "poison.json", "z.json"):
        (watched.folder / name).write_bytes(ORDER)
    watched.claim_all()
    with monkeypatch.context() as patched:
        fail_on_poison(patched, "receive")
        assert sorted((interchange.published, interchange.suspended) for interchange in watched.receive()) == [
            (0, 1),
            (1, 0),
            (1, 0),
        ]
    assert box.queued() == {"Everything": 2}
    assert box.count("file claims") == 0
    assert box.suspended() == [("PIPELINE", True)]
    reason = box.read_error()
    assert "a defect in the agent" in reason
    assert "ZeroDivisionError at " in reason
    assert box.bodies() == [ORDER] * 3


def test_a_file_that_cannot_be_suspended_is_quarantined(
    watched: WatchedLocation, make_claimer: MakeClaimer, box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a.json", "poison.json", "z.json"):
        (watched.folder / name).write_bytes(ORDER)
    watched.claim_all()
    with monkeypatch.context() as patched:
        fail_on_poison(patched, "receive")
        fail_on_poison(patched, "reject")
        assert len(watched.receive()) == 2
    assert box.queued() == {"Everything": 2}
    assert "a defect in the agent" in find_problem(box, FileClaimState.FAILED)
    watched.clock.move(3)
    assert "poison.json could not be received" in watched.claimer.scan().problems[0]
    watched.claimer.release()
    again = make_claimer()  # the next start, of a version without the defect
    for _ in range(4):
        watched.clock.move(3)
        again.scan()
    watched.receive()
    assert box.queued() == {"Everything": 3}
    assert box.count("file claims") == 0


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    return tmp_path / "old orders" / "archive"


@pytest.fixture
def location(box: Box, folder: Path, archive: Path, request: pytest.FixtureRequest) -> ReceiveLocation:
    box.add_port("Everything", "exists(Region)")
    archived = "archiv" in request.node.name
    return add_file_location(box, folder, pattern="*.json", settle=1.0, archive=archive if archived else None)


@pytest.mark.parametrize("links", [True, False], ids=["with links", "on another file system"])
def test_an_archived_file_never_replaces_another(
    watched: WatchedLocation, box: Box, archive: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    if not links:
        refuse_links_into(archive, monkeypatch)
    bodies = [b'{"region": "EU", "n": %d}' % number for number in range(3)]
    for body in bodies:
        (watched.folder / "daily.json").write_bytes(body)
        watched.claim_all()
        watched.receive()
    assert sorted(path.read_bytes() for path in archive.iterdir()) == bodies
    assert (archive / "daily.json").read_bytes() == bodies[0]
    assert all(path.suffix == ".json" for path in archive.iterdir())
    assert box.count("file claims") == 0


def test_a_suspended_file_is_archived_too(watched: WatchedLocation, box: Box, archive: Path) -> None:
    (watched.folder / "a.json").write_bytes(b"{broken")
    watched.claim_all()
    [received] = watched.receive()
    assert (received.published, received.suspended) == (0, 1)
    assert (archive / "a.json").read_bytes() == b"{broken"
    assert box.count("file claims") == 0


RACES = 60


@pytest.fixture
def other_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    with folder_on_another_file_system(tmp_path, monkeypatch) as folder:
        yield folder


@pytest.fixture
def finish_at_once(box: Box, other_archive: Path) -> Iterator[Callable[[FileClaim, FileClaim], None]]:
    """Finish two claims at the same time, each in its own thread and session."""
    start = Barrier(2)

    def finish_one(connection: Connection, claim: FileClaim) -> list[str]:
        start.wait()
        return finish_files(connection, [claim], other_archive)

    with ThreadPoolExecutor(2) as threads, ExitStack() as stack:
        connections = [stack.enter_context(connect(box.url, user=box.host().role_name)) for _ in range(2)]

        def finish_both(*both: FileClaim) -> None:
            assert list(threads.map(finish_one, connections, both)) == [[], []]
            assert not any(claim.path.exists() for claim in both)

        yield finish_both


def test_two_archived_files_of_one_name_are_both_kept_on_another_file_system(
    tmp_path: Path, other_archive: Path, finish_at_once: Callable[[FileClaim, FileClaim], None]
) -> None:
    for race in range(RACES):
        files = [published_file(tmp_path, name=f"{race}.json", body=b"%d" % number) for number in range(2)]
        finish_at_once(*files)
        assert sorted(path.read_bytes() for path in other_archive.iterdir()) == [b"0", b"1"], f"race {race}"
        for path in other_archive.iterdir():
            path.unlink()


def test_two_attempts_at_one_file_archive_it_once_on_another_file_system(
    tmp_path: Path, other_archive: Path, finish_at_once: Callable[[FileClaim, FileClaim], None]
) -> None:
    for race in range(RACES):
        claim = published_file(tmp_path, name="daily.json", body=b"%d" % race)
        finish_at_once(claim, claim)
        [archived] = other_archive.iterdir()
        assert (archived.name, archived.read_bytes()) == ("daily.json", b"%d" % race)
        archived.unlink()


def test_without_hard_links_archived_names_contain_the_interchange_id(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EPERM, os.strerror(errno.EPERM))

    monkeypatch.setattr(os, "link", refuse)
    archive = tmp_path / "archive"
    claims_of_one_name = [published_file(tmp_path, name="daily.json", body=b"%d" % number) for number in range(2)]
    for claim in [*claims_of_one_name, *claims_of_one_name]:
        assert finish_files(box.connection, [claim], archive) == []
    assert {path.name: path.read_bytes() for path in archive.iterdir()} == {
        f"daily.{claim.interchange_id}.json": b"%d" % number for number, claim in enumerate(claims_of_one_name)
    }


def published_file(tmp_path: Path, *, name: str, body: bytes) -> FileClaim:
    """Return the claim of a file whose messages are committed."""
    interchange_id = uuid.uuid4()
    path = tmp_path / f"{interchange_id}~{name}"
    path.write_bytes(body)
    status = path.lstat()
    return FileClaim(
        interchange_id=interchange_id, name=name, path=path, size=status.st_size, modified_ns=status.st_mtime_ns
    )


def test_a_file_that_cannot_be_archived_stays_and_is_tried_again(
    watched: WatchedLocation, box: Box, archive: Path
) -> None:
    archive.parent.mkdir()
    archive.write_text("a file where the folder should be")
    (watched.folder / "a.json").write_bytes(ORDER)
    watched.claim_all()
    [claim] = watched.claimed()
    watched.task.receive([claim])
    assert box.queued() == {"Everything": 1}
    assert states(box) == [3]
    assert claim.path.exists()
    watched.clock.move(3)
    assert "cannot be removed" in watched.claimer.scan().problems[0]
    archive.unlink()
    watched.clock.move(3)
    watched.claimer.scan()
    assert (archive / "a.json").read_bytes() == ORDER
    assert box.count("file claims") == 0


def test_an_empty_task_connects_the_worker(task: SparkReceiveTask, box: Box) -> None:
    sessions = """SELECT count(*) FROM pg_stat_activity
                   WHERE application_name = 'postroom receive' AND datname = current_database()"""
    assert [tally.num_rows for _ in range(2) for tally in task([])] == [0, 0]
    assert box.one(sessions) == 1
    close_worker(Login(url=box.url, user=box.host().role_name))
    wait_until(lambda: box.one(sessions) == 0, what="no session left over")


def test_a_file_without_documents_is_removed_and_logged(
    make_claimer: MakeClaimer,
    clock: MovedClock,
    folder: Path,
    box: Box,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    location = add_file_location(box, folder, name="nightly", pattern="*.jsonl", pipeline=pipelines.JsonLines())
    (folder / "monday.jsonl").write_bytes(b"\n\n")
    claimer = make_claimer(location)
    claimer.scan()
    clock.move(3)
    claimer.scan()
    login = Login(url=box.url, user=box.host().role_name)
    task = SparkReceiveTask(location=location, home=tmp_path, login=login)
    try:
        [received] = task.receive(read_numbered_claims(box.connection, location))
    finally:
        close_worker(login)
    assert received.empty
    assert "nightly: monday.jsonl is empty (2 bytes)" in caplog.text
    assert not [path for path in folder.rglob("*.jsonl") if path.is_file()]
    assert box.count("file claims") == 0


def test_an_abandoned_attempt_does_not_reset_a_published_claim(watched: WatchedLocation, box: Box) -> None:
    (watched.folder / "a.json").write_bytes(ORDER)
    watched.claim_all()
    [claim] = watched.claimed()
    file_claims.store_problem(box.connection, claim, FileClaimState.PUBLISHED, "It is kept aside.")
    file_claims.store_problem(box.connection, claim, FileClaimState.FAILED, "It could not be received.")
    file_claims.store_problem(box.connection, claim, FileClaimState.MISSING, "It is gone.")
    file_claims.reset_claims(box.connection, [claim.interchange_id])
    assert states(box) == [FileClaimState.PUBLISHED]
    assert box.file_claims()[0].problem == "It is kept aside."
