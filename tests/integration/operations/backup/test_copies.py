"""A restored copy beside its original: what both would do, and how the copy is kept from doing it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom import BackupTransport, adapters
from postroom.adapters import Attempt
from postroom.errors import StateError
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.messagebox.coordination.running_processes import ProcessKind, register_process
from postroom.messagebox.intake.file_claims import FileClaimState
from postroom.operations.backup import create_backup, read_manifest, restore_backup
from postroom.operations.deployment.taken_changes import wait_until_taken
from postroom.operations.hosts import set_stopped
from postroom.operations.roles import grant_role, list_roles, revoke_role
from postroom.ports.receive_locations import read_receive_locations
from postroom.ports.send_ports import read_send_ports
from postroom.receiving.files.file_claimer import FileClaimer
from tests.integration.hosts.conftest import SETTINGS
from tests.support.box import Box, Region, open_box
from tests.support.databases import Databases
from tests.support.file_location import add_file_location
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

LOGIN = "postroom_test_copies"


@pytest.fixture
def empty(databases: Databases) -> Iterator[str]:
    """Yield the URL of a database without tables, on the server of the original."""
    with databases.clone("template0") as url:
        yield url


def back_up(box: Box, folder: Path) -> Path:
    create_backup(box.url, folder / "home", folder / "backup")
    return folder / "backup"


def restore(url: str, folder: Path, backup: Path, *, stopped: bool = False) -> None:
    restore_backup(url, folder / "copy", backup, read_manifest(backup), stopped=stopped)


def test_a_copy_sends_the_queued_messages_again_with_the_same_ids(box: Box, tmp_path: Path, empty: str) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.agent().publish([Message.of(b"once", promoted={Region: "EU"})])
    restore(empty, tmp_path, back_up(box, tmp_path))
    sent: list[tuple[object, ...]] = []

    def record(message: Message, attempt: Attempt) -> None:
        sent.append((message.message_id, attempt.instance_id))

    for url in (box.url, empty):
        recorder = RecordingAdapter(record)
        with HostInstance(url, "Default", tmp_path, build_adapter=recorder.build, settings=SETTINGS, as_role=True):
            wait_until(lambda url=url: is_drained(url))  # type: ignore[misc]
    assert len(sent) == 2
    assert len(set(sent)) == 1, "a receiver can recognise it"


def test_a_copy_sends_to_the_folders_of_its_own_home(box: Box, tmp_path: Path, empty: str) -> None:
    """Both transports of a send port are moved."""
    late = adapters.File("late")
    box.add_port("Europe", adapter=adapters.File("out").model_dump(mode="json"), backup=BackupTransport(late))
    restore(empty, tmp_path, back_up(box, tmp_path))
    with open_box(empty) as copy:
        (port,) = read_send_ports(copy.connection)
    assert port.backup is not None
    uris = [(tmp_path / "copy" / folder).as_uri() for folder in ("out", "late")]
    assert [port.uri, port.backup.uri] == uris


def is_drained(url: str) -> bool:
    with open_box(url) as one:
        return one.count("instances") == 0


def test_a_copy_takes_the_files_that_its_original_has_claimed_from_the_same_folder(
    box: Box, tmp_path: Path, empty: str
) -> None:
    """The private folder has the id of the location, which both have."""
    (tmp_path / "in").mkdir()
    location = add_file_location(box, tmp_path / "in")
    restore(empty, tmp_path, back_up(box, tmp_path))
    (tmp_path / "in" / "order.json").write_text("{}")
    claimed = {}
    for url in (box.url, empty):
        with open_box(url) as one:
            claimer = FileClaimer(one.connection, location, tmp_path)
            for _ in range(2):
                claimer.scan()
            claimed[url] = [
                claim.interchange_id for claim in one.file_claims() if claim.state == FileClaimState.CLAIMED
            ]
            claimer.release()
    assert len(claimed[box.url]) == 1
    assert claimed[empty] == claimed[box.url]


def test_a_role_of_a_copy_on_the_same_server_is_the_role_of_its_original(box: Box, tmp_path: Path, empty: str) -> None:
    box.connection.execute(f"CREATE ROLE {LOGIN} LOGIN")
    try:
        grant_role(box.connection, "operators", LOGIN)
        restore(empty, tmp_path, back_up(box, tmp_path))
        with open_box(empty) as copy:
            revoke_role(copy.connection, "operators", LOGIN)
        assert {role.name: role.logins for role in list_roles(box.connection)}["operators"] == ()
    finally:
        box.connection.execute(f"DROP ROLE {LOGIN}")


def test_a_restore_beside_running_hosts_on_the_same_server_is_refused(box: Box, tmp_path: Path, empty: str) -> None:
    backup = back_up(box, tmp_path)
    host = box.host()
    with connect(box.url, user=host.role_name) as process:
        register_process(process, host.host_id, ProcessKind.HOST)
        with pytest.raises(StateError, match="Hosts of this MessageBox run on this server") as refused:
            restore(empty, tmp_path, backup)
        assert repr(box.one("SELECT current_database()::text")) in refused.value.what
        restore(empty, tmp_path, backup, stopped=True)
    with open_box(empty) as copy:
        assert copy.host().stopped
    assert not box.host().stopped


def test_a_stopped_copy_sends_nothing_until_its_hosts_are_started(box: Box, tmp_path: Path, empty: str) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.agent().publish([Message.of(b"once", promoted={Region: "EU"})])
    restore(empty, tmp_path, back_up(box, tmp_path), stopped=True)
    recorder = RecordingAdapter()
    with open_box(empty) as copy:
        instance = HostInstance(
            empty, "Default", tmp_path, build_adapter=recorder.build, settings=SETTINGS, as_role=True
        )
        with instance:
            wait_until_taken(copy.connection, ["Default"])
            assert copy.queued() == {"Europe": 1}
            assert recorder.sent == []
            set_stopped(copy.connection, "Default", stopped=False)
            wait_until(lambda: copy.count("instances") == 0)
    assert len(recorder.sent) == 1


def test_locations_of_a_copy_have_the_ids_of_the_original(box: Box, tmp_path: Path, empty: str) -> None:
    (tmp_path / "in").mkdir()
    add_file_location(box, tmp_path / "in")
    restore(empty, tmp_path, back_up(box, tmp_path))
    with open_box(empty) as copy:
        assert [one.location_id for one in read_receive_locations(copy.connection)] == [
            one.location_id for one in read_receive_locations(box.connection)
        ]
