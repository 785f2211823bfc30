"""Bring a database to the schema that this version of Postroom needs.

Everything is applied in one transaction, by one process at a time, in this order:

1. schema/: tables and views. Each file is applied once, in the order of the numbers, and never changes after a release.
2. procedures/: functions, those of the MessageBox first, then those of each host.
3. grants/: the rights of each role.

Procedures and grants are replaced as a whole whenever one of them changed.
"""

from __future__ import annotations

import hashlib

from postroom.errors import DefinitionError, StateError
from postroom.messagebox.connection import Connection, connect, read_value
from postroom.messagebox.statements import list_statements, statement

#: The oldest major version of PostgreSQL that can be used.
MIN_SERVER_VERSION = 15

_PROCEDURES = ("procedures/jobs", "procedures", "procedures/operators")
_HOST_PROCEDURES = "procedures/host"
_GRANTS = ("grants/all_hosts", "grants/operators_and_administrators", "grants/management")
_HOST_GRANTS = "grants/one_host"

#: The roles of a MessageBox in addition to those of its hosts. A login without any of them has no rights.
_GROUPS = ("hosts", "trusted", "operators", "administrators")


def migrate(url: str) -> None:
    """Create or upgrade the MessageBox in the database at ``url``. Do nothing if it is up to date."""
    with connect(url, application_name="postroom migrate") as connection:
        check_server_version(connection.info.server_version)
        if not is_current(connection):
            with connection.transaction():
                connection.execute("SELECT pg_advisory_xact_lock(7001, 9)")
                _apply_schema(connection)
                _apply_procedures_and_grants(connection)


def check_server_version(version: int) -> None:
    """Raise StateError if a server is too old. ``version`` is a number as in ``server_version_num``."""
    if version < MIN_SERVER_VERSION * 10_000:
        raise StateError(
            f"The server has PostgreSQL {version // 10_000}, but Postroom needs {MIN_SERVER_VERSION} or later.",
            hint="Upgrade the server, or leave out --database to use the embedded one.",
        )


def connect_to_messagebox(url: str, *, application_name: str = "postroom") -> Connection:
    """Connect to the MessageBox at ``url``. Raise StateError if there is none, or if its version differs."""
    connection = connect(url, application_name=application_name)
    try:
        if not is_current(connection):
            raise StateError(
                "The database has no MessageBox that this version of Postroom can use.",
                why="No application was ever applied to it, or an older version created it.",
                hint="Run 'postroom apply APP', which creates or upgrades it.",
            )
    except BaseException:
        connection.close()
        raise
    return connection


def create_host(connection: Connection, name: str, *, is_default: bool = False) -> int:
    """Create a host with its role, queues and procedures, in the caller's transaction. Return its id."""
    connection.execute("SELECT change_routing()")
    role = f"postroom_{_box_id(connection)}_host_{name.lower()}"
    insert = "INSERT INTO hosts (name, role_name, is_default) VALUES (%s, %s, %s) RETURNING id"
    host_id = int(read_value(connection, insert, name, role, is_default))
    connection.execute("INSERT INTO messagebox.key_secrets (host_id) VALUES (%s)", (host_id,))
    _create_role(connection, role, login=True, member_of=get_group_role(connection, "hosts"))
    connection.execute(_for_host(connection, "queries/create_host_queues", name, host_id, role))
    _apply_host_procedures(connection, name, host_id, role)
    connection.execute(_for_host(connection, _HOST_GRANTS, name, host_id, role))
    return host_id


def remove_host(connection: Connection, host_id: int, name: str, role: str) -> None:
    """Remove a host that nothing belongs to any more, with its role, queues and procedures, in the caller's
    transaction."""
    connection.execute("SELECT change_routing()")
    for table in (
        "subscriptions",
        "convoy_sets",
        "application_properties",
        "host_instances",
        "open_circuits",
    ):
        connection.execute(f"DELETE FROM {table} WHERE host_id = %s", (host_id,))
    connection.execute(f"DROP FUNCTION {', '.join(_find_host_functions(connection, name))}")
    for queue in ("q", "q_scheduled", "q_suspended"):
        connection.execute(f"DROP TABLE messagebox.{name.lower()}_{queue}")
    connection.execute("DELETE FROM messagebox.hosts WHERE id = %s", (host_id,))
    connection.execute(f"DROP OWNED BY {role}")
    connection.execute(f"DROP ROLE {role}")


def is_current(connection: Connection) -> bool:
    """Return True if this is a MessageBox with the schema and the procedures of this version.

    Raise StateError if this version cannot use it: a newer version upgraded it, or an unreleased version created it.
    """
    applied = _applied_files(connection)
    if not applied:
        return False
    known = {_number(name): name for name in list_statements("schema")}
    if any(known.get(number, name) != name for number, name in applied.items()):
        raise StateError(
            "The MessageBox was created by an unreleased version of Postroom.",
            why="Its tables differ from those of this version, and there is no migration.",
            hint="Use a new home folder or an empty database, and apply your applications there.",
        )
    if max(applied) > max(known):
        raise StateError(
            f"The MessageBox has schema version {max(applied)}; this Postroom knows only {max(known)}.",
            hint="Use the newer Postroom that upgraded it.",
        )
    row = connection.execute("SELECT max(procedures) FROM management.schema_version").fetchone()
    return applied == known and row == (_procedures_hash(),)


def _applied_files(connection: Connection) -> dict[int, str]:
    """Return the name of each schema file that was applied, by number."""
    if connection.execute("SELECT to_regclass('management.schema_version')").fetchone() == (None,):
        return {}
    return dict(connection.execute("SELECT version, name FROM management.schema_version").fetchall())


def _apply_schema(connection: Connection) -> None:
    applied = _applied_files(connection)
    for name in list_statements("schema"):
        if _number(name) not in applied:
            connection.execute(statement(name))
            connection.execute(
                "INSERT INTO management.schema_version (version, name) VALUES (%s, %s)", (_number(name), name)
            )


def _apply_procedures_and_grants(connection: Connection) -> None:
    for group in _GROUPS:
        _create_role(connection, get_group_role(connection, group), login=False)
    hosts = connection.execute("SELECT name, id, role_name FROM messagebox.hosts").fetchall()
    # Functions call each other, so their bodies cannot be checked when they are created.
    connection.execute("SET LOCAL check_function_bodies = off")
    for folder in _PROCEDURES:
        for name in list_statements(folder):
            connection.execute(_with_groups(connection, name))
    for host, host_id, role in hosts:
        _apply_host_procedures(connection, host, host_id, role)
    for name in _GRANTS:
        connection.execute(_with_groups(connection, name))
    for host, host_id, role in hosts:
        connection.execute(_for_host(connection, _HOST_GRANTS, host, host_id, role))
    connection.execute("UPDATE management.schema_version SET procedures = %s", (_procedures_hash(),))


def _apply_host_procedures(connection: Connection, host: str, host_id: int, role: str) -> None:
    for procedure in list_statements(_HOST_PROCEDURES):
        connection.execute(_for_host(connection, procedure, host, host_id, role))


def _find_host_functions(connection: Connection, host: str) -> list[str]:
    """Return the procedures of a host with their parameters. A version that has changed the parameters of a procedure
    leaves the earlier one, because hosts of the earlier version may still run."""
    names = [f"{procedure.rpartition('/')[2]}_{host.lower()}" for procedure in list_statements(_HOST_PROCEDURES)]
    rows = connection.execute(
        "SELECT oid::regprocedure::text FROM pg_proc"
        " WHERE pronamespace = 'messagebox'::regnamespace AND proname = ANY (%s)",
        (names,),
    )
    return [function for (function,) in rows]


def _for_host(connection: Connection, name: str, host: str, host_id: int, role: str) -> str:
    if not (host.isascii() and host.isidentifier()):
        raise DefinitionError(f"{host!r} is not the name of a host.", hint="Use letters, digits and underscores.")
    text = _with_groups(connection, name)
    if "__HOST_FUNCTIONS__" in text:
        text = text.replace("__HOST_FUNCTIONS__", ", ".join(_find_host_functions(connection, host)))
    return text.replace("__HOST_ID__", str(host_id)).replace("__HOST__", host.lower()).replace("__ROLE__", role)


def _with_groups(connection: Connection, name: str) -> str:
    """Return a statement with the names of this MessageBox's roles in place of __HOSTS_ROLE__ and the others."""
    text = statement(name)
    for group in _GROUPS:
        text = text.replace(f"__{group.upper()}_ROLE__", get_group_role(connection, group))
    return text


def _create_role(connection: Connection, role: str, *, login: bool, member_of: str | None = None) -> None:
    """Create a role if it does not exist. Roles belong to the server: another transaction may create it now."""
    option = "LOGIN" if login else "NOLOGIN"
    connection.execute(
        f"DO $$ BEGIN CREATE ROLE {role} {option};"
        " EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$"
    )
    if member_of is not None:
        connection.execute(f"GRANT {member_of} TO {role}")


def _box_id(connection: Connection) -> str:
    return str(read_value(connection, "SELECT id FROM messagebox.message_box"))


def get_group_role(connection: Connection, group: str) -> str:
    """Return the role of all hosts, trusted hosts, operators or administrators of this MessageBox."""
    return f"postroom_{_box_id(connection)}_{group}"


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].partition("_")[0])


def _procedures_hash() -> str:
    digest = hashlib.blake2b(digest_size=16)
    for folder in (*_PROCEDURES, _HOST_PROCEDURES, "grants"):
        for name in list_statements(folder):
            digest.update(statement(name).encode())
    return digest.hexdigest()
