"""A MessageBox of an earlier release is upgraded. A MessageBox of an unreleased version is rejected."""

from __future__ import annotations

import pytest

from postroom.errors import StateError
from postroom.maps.port_maps import NO_MAPS
from postroom.message import Message
from postroom.messagebox import migrate as migrations
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.migrate import check_server_version, is_current, migrate
from postroom.messagebox.statements import list_statements, statement
from postroom.pipelines.send.definition import PASS_THRU_TRANSMIT
from postroom.ports.receive_locations import read_receive_locations
from postroom.ports.send_ports import read_send_ports
from tests.support.box import Box, Region

ADDED = {
    "schema/9999_added": "ALTER TABLE messagebox.hosts ADD COLUMN added integer NOT NULL DEFAULT 7",
    "procedures/added": "CREATE OR REPLACE FUNCTION messagebox.added() RETURNS integer LANGUAGE sql AS 'SELECT 7'",
    "procedures/host/added": "CREATE OR REPLACE FUNCTION messagebox.added___HOST__() RETURNS text"
    " LANGUAGE sql AS $$SELECT '__HOST__'$$",
}


@pytest.fixture
def next_release(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Simulate a later release with one more schema file and two more procedures."""

    def list_all_statements(folder: str) -> tuple[str, ...]:
        return (*list_statements(folder), *(name for name in ADDED if name.rpartition("/")[0] == folder))

    monkeypatch.setattr(migrations, "list_statements", list_all_statements)
    monkeypatch.setattr(migrations, "statement", lambda name: ADDED.get(name) or statement(name))
    return monkeypatch


def test_a_messagebox_in_use_is_upgraded(box: Box, next_release: pytest.MonkeyPatch) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish([Message.of(b"an order", promoted={Region: "EU"})])
    assert not is_current(box.connection)
    migrate(box.url)
    assert is_current(box.connection)
    assert box.one("SELECT added FROM hosts") == 7
    assert box.one("SELECT added()") == 7
    assert box.one("SELECT added_default()") == "default"
    assert (box.count("messages"), box.queued()) == (1, {"Europe": 1})
    assert check(box.connection) == []


def test_settings_that_an_earlier_release_did_not_store_have_their_defaults(box: Box) -> None:
    box.add_location()
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.connection.execute("UPDATE send_ports SET definition = definition - '{response_maps,expire_after}'::text[]")
    box.connection.execute(
        "UPDATE receive_ports SET definition = definition - ARRAY['authentication', 'send_pipeline']"
    )
    box.connection.execute("UPDATE receive_locations SET definition = definition - 'renamed_from'")
    [location], [port] = read_receive_locations(box.connection), read_send_ports(box.connection)
    assert (location.authentication, location.definition["renamed_from"]) == ("none", None)
    assert location.send_pipeline == PASS_THRU_TRANSMIT
    assert (port.settings.expire_after, port.response_maps) == (None, NO_MAPS)


def test_hosts_of_two_versions_call_a_procedure_with_different_parameters(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    changed = "procedures/host/written_sink_batches"

    def change(name: str) -> str:
        text = statement(name)
        return text.replace("p_port_id uuid", "p_port_id uuid, p_more integer") if name == changed else text

    monkeypatch.setattr(migrations, "statement", change)
    migrate(box.url)
    with box.connection.transaction():
        box.connection.execute(f"SET LOCAL ROLE {box.host().role_name}")
        for arguments in ("gen_random_uuid()", "gen_random_uuid(), 1"):
            assert box.one(f"SELECT count(*) FROM written_sink_batches_default({arguments})") == 0


def test_an_older_version_does_not_use_an_upgraded_messagebox(box: Box, next_release: pytest.MonkeyPatch) -> None:
    migrate(box.url)
    next_release.undo()
    with pytest.raises(StateError, match="schema version 9999; this Postroom knows only"):
        is_current(box.connection)


def test_a_messagebox_of_an_unreleased_version_is_rejected(box: Box) -> None:
    box.connection.execute("UPDATE schema_version SET name = 'schema/0006_instance_subscriptions' WHERE version = 6")
    [(newest,)] = box.connection.execute("SELECT max(version) FROM schema_version").fetchall()
    for number in range(newest + 1, 31):
        box.connection.execute("INSERT INTO schema_version (version, name) VALUES (%s, 'schema/old')", (number,))
    with pytest.raises(StateError, match="unreleased version") as error:
        migrate(box.url)
    assert error.value.hint == "Use a new home folder or an empty database, and apply your applications there."


def test_a_server_that_is_too_old_is_refused(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    check_server_version(150_000)
    with pytest.raises(StateError, match="The server has PostgreSQL 14, but Postroom needs 15 or later"):
        check_server_version(140_012)
    monkeypatch.setattr(migrations, "MIN_SERVER_VERSION", 99)
    with pytest.raises(StateError, match="but Postroom needs 99 or later"):
        migrate(box.url)
