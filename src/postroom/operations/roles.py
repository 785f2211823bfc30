"""Who may do what: the roles of a MessageBox and the logins that have them (SEC-13, docs/how-to/security.md)."""

from __future__ import annotations

from dataclasses import dataclass

from postroom.errors import NotFound, nearest
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.statements import statement

_NOT_THERE = "PR404"


@dataclass(frozen=True, kw_only=True)
class Role:
    """``name`` is what people write: administrators, operators, or host:NAME."""

    name: str
    role_name: str
    logins: tuple[str, ...]


def list_roles(connection: Connection) -> list[Role]:
    """The roles that a login can be given: administrators, operators, then one per host."""
    rows = connection.execute(statement("queries/list_roles"))
    return [Role(name=name, role_name=role_name, logins=tuple(logins)) for name, role_name, logins in rows]


def grant_role(connection: Connection, role: str, login: str) -> None:
    """The login may from now on do what the role may."""
    _call(connection, "grant_role", role, login)


def revoke_role(connection: Connection, role: str, login: str) -> None:
    """The login may no longer do what the role may."""
    _call(connection, "revoke_role", role, login)


def _call(connection: Connection, function: str, role: str, login: str) -> None:
    role_name = _named(connection, role).role_name
    try:
        transaction(connection, lambda c: c.execute(f"SELECT {function}(%s, %s)", (role_name, login)))
    except NotFound as error:
        raise NotFound(
            f"There is no login {login!r}.",
            why="Roles are given to logins of the PostgreSQL server, which are not Postroom's to make.",
            hint=f"Have one made: CREATE ROLE {login} LOGIN PASSWORD '…'",
        ) from error


def _named(connection: Connection, name: str) -> Role:
    roles = list_roles(connection)
    for role in roles:
        if role.name.lower() == name.lower():
            return role
    raise NotFound(f"There is no role {name!r}.", hint=nearest(name, (role.name for role in roles), "The roles are"))
