"""The tables of lookups: LRG-10."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from psycopg.errors import InsufficientPrivilege

from postroom.errors import PostroomError
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.lookups import read_lookup, read_lookup_entry
from postroom.messagebox.maintenance.check import find_violations
from tests.support.deployment import deploy
from tests.support.lookups import customers_app


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with connect(database) as opened:
        deploy(opened, customers_app())
        yield opened


def test_a_lookup_without_its_content_is_a_violation(connection: Connection) -> None:
    connection.execute("DELETE FROM lookup_contents")
    assert [violation.invariant for violation in find_violations(connection)] == ["wrong_lookups"]


def test_an_entry_that_no_cache_would_notice_is_a_violation(connection: Connection) -> None:
    connection.execute(
        "INSERT INTO lookup_entries (lookup_id, key, version, seq, message_id)"
        " SELECT id, 'C-1', version + 1, 1, gen_random_uuid() FROM lookup_contents"
    )
    assert [violation.invariant for violation in find_violations(connection)] == ["wrong_lookups"]


def test_a_reader_that_has_seen_more_than_a_restored_backup_has_forgets_everything(connection: Connection) -> None:
    state = read_lookup(connection, "Customers")
    assert state is not None
    same = read_lookup(connection, "Customers", known_id=state.lookup_id, known_version=state.version)
    assert same is not None
    assert same.changed == []
    restored = read_lookup(connection, "Customers", known_id=state.lookup_id, known_version=state.version + 1)
    assert restored is not None
    assert restored.changed is None


def test_a_host_reads_entries_by_functions_only(connection: Connection, database: str) -> None:
    """SUB-07: it cannot write them, and cannot read the tables."""
    with connect(database, user=find_host(connection, "Main").role_name) as host:
        state = read_lookup(host, "Customers")
        assert state is not None
        assert read_lookup_entry(host, state.lookup_id, "C-1") is None
        for command in (
            "SELECT FROM lookup_entries",
            "DELETE FROM lookup_entries",
            "UPDATE lookup_contents SET version = 0",
        ):
            with pytest.raises((PostroomError, InsufficientPrivilege)):
                host.execute(command)
