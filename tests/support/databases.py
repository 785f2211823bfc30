"""New MessageBoxes for tests. Templates are created once per server, and each test gets a clone of a template."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
from psycopg import sql

from postroom.messagebox.connection import connect
from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.migrate import migrate
from tests.support.box import Box, add_test_objects, open_box

_EMPTY, _WITH_HOST = "template_messagebox", "template_box"
# A copy of the files takes half the time of the default strategy, which writes everything to the WAL.
_CLONE = "CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"


class Databases:
    """The databases of one server."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._execute("CREATE DATABASE {name}", name=_EMPTY)
        migrate(server.url(database=_EMPTY))
        self._execute(_CLONE, name=_WITH_HOST, template=_EMPTY)
        with connect(server.url(database=_WITH_HOST)) as connection:
            add_test_objects(connection)
        # Roles and their members belong to the whole server. A change by a test must not affect the next test.
        self._roles = self._all_roles()
        self._members = self._all_members()

    @contextmanager
    def clone(self, template: str = _EMPTY) -> Iterator[str]:
        """Yield the URL of a new MessageBox of the superuser. It is dropped with its roles at the end."""
        name = f"messagebox_{next(self._numbers)}"
        self._execute(_CLONE, name=name, template=template)
        try:
            yield self._server.url(database=name)
        finally:
            self._execute("DROP DATABASE {name} WITH (FORCE)", name=name)
            for role in self._all_roles() - self._roles:
                # A role that another database uses is dropped with that database.
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
        """Yield a new MessageBox with one host and the properties of orders."""
        with self.clone(_WITH_HOST) as url, open_box(url) as box:
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
