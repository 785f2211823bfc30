"""The databases of the tests are isolated from each other."""

from __future__ import annotations

import psycopg

from tests.support.databases import Databases


def test_every_test_gets_a_new_messagebox(databases: Databases) -> None:
    with databases.clone() as url, psycopg.connect(url, autocommit=True) as connection:
        assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'messagebox'").fetchone() == (1,)
        connection.execute("CREATE ROLE left_behind")
        connection.execute("CREATE TABLE left_behind ()")
    with databases.clone() as url, psycopg.connect(url) as connection:
        assert connection.execute("SELECT to_regclass('left_behind')").fetchone() == (None,)
        assert connection.execute("SELECT 1 FROM pg_roles WHERE rolname = 'left_behind'").fetchone() is None


def test_trusted_hosts_are_reset_between_tests(databases: Databases) -> None:
    members = "SELECT count(*) FROM pg_auth_members WHERE member = %s::regrole"
    with databases.open_box() as box:
        role, before = box.host().role_name, box.one(members, box.host().role_name)
        box.connection.execute(f"GRANT pg_monitor TO {role}")
        assert box.one(members, role) == before + 1
    with databases.open_box() as box:
        assert box.one(members, role) == before


def test_the_durable_server_writes_synchronously(durable_database: str) -> None:
    with psycopg.connect(durable_database) as connection:
        for setting in ("fsync", "synchronous_commit", "full_page_writes"):
            assert connection.execute("SELECT current_setting(%s)", (setting,)).fetchone() == ("on",), setting
