"""What a backup reads from the database, and what a restore changes in it."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from psycopg import sql

from postroom.messagebox.connection import Connection, read_value, use_one_snapshot
from postroom.messagebox.statements import statement

#: Statements that follow the restored dump, in its transaction. The stored transaction ids are those of another server.
#: Without the hash of its procedures no host uses the database before ``migrate`` has set its rights.
AFTER_RESTORE = (
    "SELECT messagebox.repair_ref_counts(0);",
    "UPDATE messagebox.subscriptions SET created_in = NULL;",
    "UPDATE management.schema_version SET procedures = NULL;",
)
STOP_ALL_HOSTS = "UPDATE messagebox.hosts SET stopped = true;"


class ClaimedPath(NamedTuple):
    """The file of a file claim. ``state`` is a FileClaimState."""

    interchange_id: uuid.UUID
    location_id: uuid.UUID
    path: str
    inode: int | None
    state: int


class RoleMembers(NamedTuple):
    """A role of the MessageBox, and the roles and logins that are members of it."""

    name: str
    can_login: bool
    members: Sequence[str]


def begin_backup(connection: Connection) -> None:
    """Let the transaction see one snapshot, and be idle during the dump."""
    use_one_snapshot(connection)
    connection.execute("SET LOCAL idle_in_transaction_session_timeout = 0")


def export_snapshot(connection: Connection) -> str:
    """Return the name of the snapshot. The first statement takes it: PostgreSQL takes none at the start of a
    transaction."""
    return str(read_value(connection, "SELECT pg_export_snapshot()"))


def get_messagebox_id(connection: Connection) -> str:
    return str(read_value(connection, "SELECT id FROM messagebox.message_box"))


def read_claimed_paths(connection: Connection) -> list[ClaimedPath]:
    return [ClaimedPath(*row) for row in connection.execute(statement("queries/read_all_file_claims"))]


def read_role_members(connection: Connection) -> list[RoleMembers]:
    return [RoleMembers(*row) for row in connection.execute(statement("queries/read_role_members"))]


def count_tables(connection: Connection) -> tuple[int, int]:
    """Return the number of tables in the database, and how many of them belong to a MessageBox."""
    [(tables, messagebox_tables)] = connection.execute(statement("queries/count_tables")).fetchall()
    return tables, messagebox_tables


def create_roles(connection: Connection, roles: Sequence[RoleMembers]) -> tuple[str, ...]:
    """Create the roles of the MessageBox and their members. Return the logins that do not exist."""
    own_roles = {role.name for role in roles}
    existing = {name for (name,) in connection.execute("SELECT rolname::text FROM pg_roles")}
    with connection.transaction():
        for role in roles:
            if role.name not in existing:
                option = "LOGIN" if role.can_login else "NOLOGIN"
                connection.execute(sql.SQL(f"CREATE ROLE {{}} {option}").format(sql.Identifier(role.name)))
        for role in roles:
            for member in role.members:
                if member in own_roles | existing:
                    connection.execute(
                        sql.SQL("GRANT {} TO {}").format(sql.Identifier(role.name), sql.Identifier(member))
                    )
    return tuple(sorted({member for role in roles for member in role.members} - own_roles - existing))


def build_claim_update(
    interchange_id: uuid.UUID | None, path: Path, *, inode: int, modified_before: int, modified_now: int
) -> str:
    """Return the statement that points a file claim to its restored file."""
    return (
        sql.SQL(statement("queries/move_file_claim"))
        .format(
            path=sql.Literal(str(path)),
            inode=sql.Literal(inode),
            modified_before=sql.Literal(modified_before),
            modified_now=sql.Literal(modified_now),
            interchange_id=sql.Literal(str(interchange_id)),
        )
        .as_string()
    )


def store_location_uri(connection: Connection, location_id: uuid.UUID, uri: str) -> None:
    connection.execute("UPDATE receive_locations SET uri = %s WHERE id = %s", (uri, location_id))


def store_port_uris(connection: Connection, port_id: uuid.UUID, uri: str, backup_uri: str | None) -> None:
    connection.execute("UPDATE send_ports SET uri = %s, backup_uri = %s WHERE id = %s", (uri, backup_uri, port_id))


def analyze(connection: Connection) -> None:
    """Let the planner know the restored tables."""
    connection.execute("ANALYZE")
