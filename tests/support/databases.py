"""New MessageBoxes for tests. Templates are created once per server, and each test gets a clone of a template."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import psycopg
from psycopg import sql

from postroom.messagebox.connection import connect
from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.migrate import migrate
from tests.support.box import Box, add_test_objects, open_box
from tests.support.waiting import wait_until

_EMPTY, _WITH_HOST = "template_messagebox", "template_box"
# A copy of the files takes half the time of the default strategy, which writes everything to the WAL.
_CLONE = "CREATE DATABASE {name} TEMPLATE {template} STRATEGY file_copy"
_END_SESSIONS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s"
_ROLES = """
    SELECT rolname, NULL FROM pg_roles
    UNION ALL
    SELECT r.rolname, m.rolname
      FROM pg_auth_members a JOIN pg_roles r ON r.oid = a.roleid JOIN pg_roles m ON m.oid = a.member
"""


class Databases:
    """The databases of one server. One session creates and drops them all."""

    def __init__(self, server: EmbeddedServer) -> None:
        self._server = server
        self._session = psycopg.connect(server.url(database="postgres"), autocommit=True)
        self._numbers = itertools.count(1)
        self._execute("CREATE DATABASE {name}", name=_EMPTY)
        migrate(server.url(database=_EMPTY))
        self._execute(_CLONE, name=_WITH_HOST, template=_EMPTY)
        with connect(server.url(database=_WITH_HOST)) as connection:
            add_test_objects(connection)
        # Roles and their members belong to the whole server. A change by a test must not affect the next test.
        self._roles, self._members = self._read_roles()

    def __enter__(self) -> Databases:
        return self

    def __exit__(self, *_: object) -> None:
        self._session.close()

    @contextmanager
    def clone(self, template: str = _EMPTY) -> Iterator[str]:
        """Yield the URL of a new MessageBox of the superuser. It is dropped with its roles at the end."""
        name = f"messagebox_{next(self._numbers)}"
        self._execute(_CLONE, name=name, template=template)
        try:
            yield self._server.url(database=name)
        finally:
            # DROP DATABASE sleeps for a tenth of a second if a session has not ended yet.
            end_sessions = partial(self._session.execute, _END_SESSIONS, (name,))
            wait_until(lambda: end_sessions().rowcount == 0, what="the end of all sessions")
            self._execute("DROP DATABASE {name} WITH (FORCE)", name=name)
            self._reset_roles()

    @contextmanager
    def open_box(self) -> Iterator[Box]:
        """Yield a new MessageBox with one host and the properties of orders."""
        with self.clone(_WITH_HOST) as url, open_box(url) as box:
            yield box

    def _reset_roles(self) -> None:
        roles, members = self._read_roles()
        if (roles, members) == (self._roles, self._members):
            return
        for role in roles - self._roles:
            # A role that another database uses is dropped with that database.
            with suppress(psycopg.errors.DependentObjectsStillExist):
                self._execute("DROP ROLE {name}", name=role)
        _, members = self._read_roles()
        for role, member in members - self._members:
            if member in self._roles:
                self._execute("REVOKE {role} FROM {member}", role=role, member=member)
        for role, member in self._members - members:
            self._execute("GRANT {role} TO {member}", role=role, member=member)

    def _read_roles(self) -> tuple[set[str], set[tuple[str, str]]]:
        """Return the roles of the server, and the pairs of a role and a member of it."""
        rows = [(str(role), member) for role, member in self._execute(_ROLES)]
        return (
            {role for role, member in rows if member is None},
            {(role, str(member)) for role, member in rows if member is not None},
        )

    def _execute(self, statement: str, **names: str) -> list[tuple[object, ...]]:
        identifiers = {key: sql.Identifier(name) for key, name in names.items()}
        cursor = self._session.execute(sql.SQL(statement).format(**identifiers))
        return cursor.fetchall() if cursor.description else []
