"""Brings a database to the schema that this version of Postroom needs.

Schema files are applied once each, in the order of their numbers, and never change after a release. Procedures are
replaced whenever any of them changed. All in one transaction, one process at a time.
"""

from __future__ import annotations

import hashlib

import psycopg

from postroom.errors import DefinitionError, StateError
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.statements import names_in, statement

_HOST_PROCEDURES = "procedures/host"

#: The roles of a MessageBox beside those of its hosts: whoever has none of them may nothing.
_GROUPS = ("hosts", "trusted", "operators", "administrators")


def migrate(url: str) -> None:
    """Creates or upgrades the MessageBox in the database at ``url``; does nothing if it is up to date."""
    with connect(url, application_name="postroom migrate") as connection:
        if not is_current(connection):
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(7001, 9)")
                _apply_schema(connection)
                _apply_procedures(connection)


def create_host(connection: Connection, name: str, *, is_default: bool = False) -> int:
    """A host with its role, its queues and its procedures; inside the caller's transaction. Returns its id."""
    connection.execute("SELECT change_routing()")
    role = f"postroom_{_box_id(connection)}_host_{name.lower()}"
    row = connection.execute(
        "INSERT INTO hosts (name, role_name, is_default) VALUES (%s, %s, %s) RETURNING id", (name, role, is_default)
    ).fetchone()
    assert row is not None
    host_id = int(row[0])
    _create_role(connection, role, login=True, member_of=group_role(connection, "hosts"))
    connection.execute(_for_host(connection, f"{_HOST_PROCEDURES}/create_queues", name, host_id, role))
    _apply_host_procedures(connection, name, host_id, role)
    return host_id


def is_current(connection: Connection) -> bool:
    """Is this a MessageBox with the schema and the procedures that this version needs? StateError if it is newer."""
    try:
        row = connection.execute("SELECT max(version), max(procedures) FROM management.schema_version").fetchone()
    except psycopg.errors.UndefinedTable:
        return False
    assert row is not None
    newest = _number(names_in("schema")[-1])
    if row[0] is not None and row[0] > newest:
        raise StateError(
            f"The MessageBox has schema version {row[0]}; this Postroom knows only {newest}.",
            hint="Use the newer Postroom that upgraded it.",
        )
    return row == (newest, _procedures_hash())


def _apply_schema(connection: Connection) -> None:
    known = connection.execute("SELECT to_regclass('management.schema_version')").fetchone()
    applied: set[int] = set()
    if known is not None and known[0] is not None:
        applied = {row[0] for row in connection.execute("SELECT version FROM management.schema_version")}
    for name in names_in("schema"):
        if _number(name) in applied:
            continue
        connection.execute(statement(name))
        connection.execute(
            "CREATE TABLE IF NOT EXISTS management.schema_version (version integer PRIMARY KEY, name text NOT NULL,"
            " procedures text, applied_at timestamptz NOT NULL DEFAULT now())"
        )
        connection.execute(
            "INSERT INTO management.schema_version (version, name) VALUES (%s, %s)", (_number(name), name)
        )


def _apply_procedures(connection: Connection) -> None:
    for group in _GROUPS:
        _create_role(connection, group_role(connection, group), login=False)
    # Functions call each other; their bodies are checked when they run.
    connection.execute("SET LOCAL check_function_bodies = off")
    for name in (*names_in("procedures/jobs"), *names_in("procedures")):
        connection.execute(_with_groups(connection, name))
    for host_id, name, role in connection.execute("SELECT id, name, role_name FROM management.hosts").fetchall():
        _apply_host_procedures(connection, name, host_id, role)
    connection.execute("UPDATE management.schema_version SET procedures = %s", (_procedures_hash(),))


def _apply_host_procedures(connection: Connection, name: str, host_id: int, role: str) -> None:
    once = {f"{_HOST_PROCEDURES}/create_queues", f"{_HOST_PROCEDURES}/grants"}
    for procedure in names_in(_HOST_PROCEDURES):
        if procedure not in once:
            connection.execute(_for_host(connection, procedure, name, host_id, role))
    connection.execute(_for_host(connection, f"{_HOST_PROCEDURES}/grants", name, host_id, role))


def _for_host(connection: Connection, name: str, host: str, host_id: int, role: str) -> str:
    if not (host.isascii() and host.isidentifier()):
        raise DefinitionError(f"{host!r} is not the name of a host.", hint="Use letters, digits and underscores.")
    return (
        _with_groups(connection, name)
        .replace("__HOST_ID__", str(host_id))
        .replace("__HOST__", host.lower())
        .replace("__ROLE__", role)
    )


def _with_groups(connection: Connection, name: str) -> str:
    """A statement with the names of this MessageBox's roles in it: __HOSTS_ROLE__ and the like."""
    text = statement(name)
    for group in _GROUPS:
        text = text.replace(f"__{group.upper()}_ROLE__", group_role(connection, group))
    return text


def _create_role(connection: Connection, role: str, *, login: bool, member_of: str | None = None) -> None:
    """Roles belong to the whole server: one of the same name may be there already, or appear this moment."""
    option = "LOGIN" if login else "NOLOGIN"
    try:
        with connection.transaction():
            connection.execute(f"CREATE ROLE {role} {option}")
    except (psycopg.errors.DuplicateObject, psycopg.errors.UniqueViolation):
        pass
    if member_of is not None:
        connection.execute(f"GRANT {member_of} TO {role}")


def _box_id(connection: Connection) -> str:
    row = connection.execute("SELECT id FROM management.message_box").fetchone()
    assert row is not None
    return str(row[0])


def group_role(connection: Connection, group: str) -> str:
    """The role of all hosts, of trusted hosts, of operators or of administrators of this MessageBox."""
    return f"postroom_{_box_id(connection)}_{group}"


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].partition("_")[0])


def _procedures_hash() -> str:
    digest = hashlib.blake2b(digest_size=16)
    for folder in ("procedures", "procedures/jobs", _HOST_PROCEDURES):
        for name in names_in(folder):
            digest.update(statement(name).encode())
    return digest.hexdigest()
