"""The roles of a MessageBox and the logins that have them (SEC-13, docs/how-to/security.md)."""

from __future__ import annotations

from typing import Literal

from postroom.errors import NotFound, suggest_names
from postroom.messagebox.audit import record_action
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.roles import Role, change_role
from postroom.messagebox.roles import list_roles as list_roles


def grant_role(connection: Connection, role: str, login: str) -> None:
    """Grant the role to a login of the PostgreSQL server."""
    _change(connection, "grant", role, login)


def revoke_role(connection: Connection, role: str, login: str) -> None:
    """Revoke the role from a login."""
    _change(connection, "revoke", role, login)


def _change(connection: Connection, change: Literal["grant", "revoke"], role: str, login: str) -> None:
    role_name = _find_role(connection, role).role_name

    def work(connection: Connection) -> None:
        change_role(connection, change, role_name, login)
        record_action(connection, f"role.{change}", login, after={"role": role})

    try:
        operator_transaction(connection, work)
    except NotFound as error:
        raise NotFound(
            f"There is no login {login!r}.",
            why="Roles are granted to logins of the PostgreSQL server, which Postroom does not create.",
            hint=f"Have the administrator of the server run: CREATE ROLE {login} LOGIN PASSWORD '…'",
        ) from error


def _find_role(connection: Connection, name: str) -> Role:
    roles = list_roles(connection)
    for role in roles:
        if role.name.lower() == name.lower():
            return role
    raise NotFound(
        f"There is no role {name!r}.", hint=suggest_names(name, (role.name for role in roles), "The roles are")
    )
