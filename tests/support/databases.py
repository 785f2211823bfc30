"""Fresh MessageBoxes for tests: one template is migrated per server, and every test gets a clone of it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg import sql

from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.migrate import migrate

_TEMPLATE = "template_messagebox"


class Databases:
    """The databases of one server."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._numbers = itertools.count(1)
        self._execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(_TEMPLATE)))
        migrate(server.url(database=_TEMPLATE))
        # Roles belong to the whole server: those that a test adds must not meet the next one.
        self._roles = self._all_roles()

    @contextmanager
    def clone(self) -> Iterator[str]:
        """The URL of a fresh MessageBox that belongs to the superuser; dropped with all its roles at the end."""
        name = f"messagebox_{next(self._numbers)}"
        names = {"name": sql.Identifier(name), "template": sql.Identifier(_TEMPLATE)}
        self._execute(sql.SQL("CREATE DATABASE {name} TEMPLATE {template}").format(**names))
        try:
            yield self._server.url(database=name)
        finally:
            self._execute(sql.SQL("DROP DATABASE {name} WITH (FORCE)").format(**names))
            for role in self._all_roles() - self._roles:
                self._execute(sql.SQL("DROP ROLE {}").format(sql.Identifier(role)))

    def _all_roles(self) -> set[str]:
        return {str(name) for (name,) in self._execute(sql.SQL("SELECT rolname FROM pg_roles"))}

    def _execute(self, statement: sql.SQL | sql.Composed) -> list[tuple[object, ...]]:
        with psycopg.connect(self._server.url(database="postgres"), autocommit=True) as connection:
            cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []
