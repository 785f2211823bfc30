"""Fresh MessageBoxes for tests: templates are made once per server, and every test gets a clone of one."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg import sql

from postroom.messagebox.connection import connect
from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.migrate import migrate
from tests.support.box import Box, furnish, open_box

_EMPTY, _FURNISHED = "template_messagebox", "template_box"
# A copy of the files costs half of what the usual way does, which writes all of it to the log.
_CLONE = "CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"


class Databases:
    """The databases of one server."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._execute("CREATE DATABASE {name}", name=_EMPTY)
        migrate(server.url(database=_EMPTY))
        self._execute(_CLONE, name=_FURNISHED, template=_EMPTY)
        with connect(server.url(database=_FURNISHED)) as connection:
            furnish(connection)
        # Roles belong to the whole server, and with them who is a member of which: what a test adds to them, or takes
        # away, must not meet the next one.
        self._roles = self._all_roles()
        self._members = self._all_members()

    @contextmanager
    def clone(self, template: str = _EMPTY) -> Iterator[str]:
        """The URL of a fresh MessageBox that belongs to the superuser; dropped with all its roles at the end."""
        name = f"messagebox_{next(self._numbers)}"
        self._execute(_CLONE, name=name, template=template)
        try:
            yield self._server.url(database=name)
        finally:
            self._execute("DROP DATABASE {name} WITH (FORCE)", name=name)
            for role in self._all_roles() - self._roles:
                # One that another database still uses goes with that.
                with suppress(psycopg.errors.DependentObjectsStillExist):
                    self._execute("DROP ROLE {name}", name=role)
            members = self._all_members()
            for role, member in members - self._members:
                if member in self._roles:
                    self._execute("REVOKE {role} FROM {member}", role=role, member=member)
            for role, member in self._members - members:
                self._execute("GRANT {role} TO {member}", role=role, member=member)

    @contextmanager
    def open_box(self) -> Iterator[Box]:
        """A fresh MessageBox with one host and the orders' properties, and short ways to act on it."""
        with self.clone(_FURNISHED) as url, open_box(url) as box:
            yield box

    def _all_roles(self) -> set[str]:
        return {str(name) for (name,) in self._execute("SELECT rolname FROM pg_roles")}

    def _all_members(self) -> set[tuple[str, str]]:
        found = self._execute("SELECT roleid::regrole::text, member::regrole::text FROM pg_auth_members")
        return {(str(role).strip('"'), str(member).strip('"')) for role, member in found}

    def _execute(self, statement: str, **names: str) -> list[tuple[object, ...]]:
        identifiers = {key: sql.Identifier(name) for key, name in names.items()}
        with psycopg.connect(self._server.url(database="postgres"), autocommit=True) as connection:
            cursor = connection.execute(sql.SQL(statement).format(**identifiers))
            return cursor.fetchall() if cursor.description else []
