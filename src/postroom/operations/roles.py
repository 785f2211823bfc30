"""The roles of a MessageBox and the logins that have them (SEC-13, docs/how-to/security.md)."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.errors import NotFound, suggest_names
from postroom.messagebox.connection import Connection, operator_transaction
from postroom.messagebox.statements import statement
from postroom.operations.audit import record_action


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


def grant_role(connection: Connection, role: str, login: str) -> None:
    """Grant the role to a login of the PostgreSQL server."""
    _call(connection, "grant_role", role, login)


def revoke_role(connection: Connection, role: str, login: str) -> None:
    """Revoke the role from a login."""
    _call(connection, "revoke_role", role, login)


def _call(connection: Connection, function: str, role: str, login: str) -> None:
    role_name = _find_role(connection, role).role_name

    def work(connection: Connection) -> None:
        connection.execute(f"SELECT {function}(%s, %s)", (role_name, login))
        record_action(connection, f"role.{function.removesuffix('_role')}", login, after={"role": role})

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
