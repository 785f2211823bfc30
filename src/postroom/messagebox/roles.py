"""The roles of the MessageBox on the PostgreSQL server, and the logins that have them (SEC-13)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement


@dataclass(frozen=True, kw_only=True)
class Role:
    """A role. ``name`` is the name that users type: administrators, operators, or host:NAME."""

    name: str
    role_name: str
    logins: tuple[str, ...]


def list_roles(connection: Connection) -> list[Role]:
    """Return the roles: administrators, operators, then one per host."""
    rows = connection.execute(statement("queries/list_roles"))
    return [Role(name=name, role_name=role_name, logins=tuple(logins)) for name, role_name, logins in rows]


def change_role(connection: Connection, change: Literal["grant", "revoke"], role_name: str, login: str) -> None:
    """Grant a role to a login, or revoke it."""
    connection.execute(f"SELECT {change}_role(%s, %s)", (role_name, login))
