"""Connections to the MessageBox, and transactions that are repeated after a conflict.

What psycopg raises becomes an error of ``postroom.errors`` here. Nothing above this module catches psycopg's own.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import psycopg
from psycopg.abc import RV, PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from postroom.backoff import Backoff
from postroom.errors import DefinitionError, MessageBoxUnavailable, TransactionConflict
from postroom.messagebox.postgres_errors import translate_psycopg_error

Connection = psycopg.Connection[tuple[Any, ...]]
Connect = Callable[[], Connection]
T = TypeVar("T")

_OPTIONS = "-c search_path=messagebox,management,pg_temp -c client_min_messages=warning"
_SETTINGS = {
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "connect_timeout": "10",
}

#: How often a transaction is run when others are in its way.
_ATTEMPTS = 8
_BACKOFF = Backoff(first=0.005, longest=0.64)


class _MessageBoxConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that raises Postroom's errors. Every statement, COPY, commit and rollback goes through ``wait``."""

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if timeout is not None:  # notifies() asks for one, and catches psycopg's own error at its end
            return super().wait(gen, interval, timeout)
        try:
            return super().wait(gen, interval)
        except psycopg.Error as error:
            raise translate_psycopg_error(error) from error

    def cursor(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().cursor(*args, **kwargs)
        except psycopg.Error as error:  # the connection is closed
            raise translate_psycopg_error(error) from error


def connect(
    url: str,
    *,
    user: str | None = None,
    application_name: str = "postroom",
    server_settings: Mapping[str, str] | None = None,
    socket_settings: Mapping[str, str] | None = None,
) -> Connection:
    """A connection in autocommit mode; work that belongs together goes into ``transaction``.

    What the URL says goes before ``socket_settings`` (libpq's), and those before the defaults. ``server_settings`` are
    PostgreSQL's own, for this session.
    """
    given = _read_address(url)
    settings: dict[str, Any] = {**_SETTINGS, "application_name": application_name, **(socket_settings or {}), **given}
    # The URL may bring options of its own; without the search path nothing would work.
    options = [_OPTIONS, *(f"-c {name}={value}" for name, value in (server_settings or {}).items())]
    settings["options"] = " ".join([*options, str(given.get("options") or "")]).strip()
    if user is not None:
        settings["user"] = user
    try:
        connection = _MessageBoxConnection.connect(make_conninfo(**settings), autocommit=True)
    except psycopg.OperationalError as error:
        raise MessageBoxUnavailable(
            "The MessageBox cannot be reached.",
            why=str(error).strip().splitlines()[0],
            hint=_way_out(str(error)),
        ) from error
    # A statement that comes for the third time is worth preparing; the engine has few, and runs them often.
    connection.prepare_threshold = 3
    return connection


def _way_out(refusal: str) -> str:
    """A server that does not let one in is running."""
    if re.search(
        r"password|authentication failed|pg_hba\.conf|role .* does not exist|not permitted to log in", refusal
    ):
        return "PostgreSQL is there. Correct the login or its password, in the address, ~/.pgpass or PGPASSWORD."
    if re.search("database .* does not exist", refusal):
        return "PostgreSQL is there. Correct the name of the database, or have it made: createdb NAME"
    return "Is PostgreSQL running there? 'postroom up' starts the embedded one."


def _read_address(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        # What stands in quotes may be a password.
        why = re.sub(r'"[^"]*"', '"…"', str(error).strip().partition("\n")[0])
        raise DefinitionError(
            "The address of the database cannot be understood.",
            why=f"PostgreSQL's client says: {why}.",
            hint="Write it as postgresql://user@server/database.",
        ) from None


def transaction(connection: Connection, work: Callable[[Connection], T]) -> T:
    """Run ``work`` in one transaction; repeat it from its start after a deadlock or a serialization failure."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with connection.transaction():
                return work(connection)
        except TransactionConflict:
            if attempt == _ATTEMPTS:
                raise
            time.sleep(_BACKOFF.delay(attempt))
    raise AssertionError("unreachable")


@dataclass(frozen=True, kw_only=True)
class Login:
    """The address of the MessageBox, and the user to log in as. ``user`` takes precedence over the URL."""

    url: str
    user: str | None = None

    @property
    def is_local(self) -> bool:
        """Return True if the address is only valid on this machine."""
        host = str(conninfo_to_dict(self.url).get("host") or "/")
        return host.startswith("/") or host in ("localhost", "127.0.0.1", "::1")

    def connect(self, purpose: str) -> Connection:
        """Open a connection. PostgreSQL shows ``purpose`` as the application's name."""
        return connect(self.url, user=self.user, application_name=f"postroom {purpose}")


class LazyConnection:
    """A connection that is opened when it is first needed, and again after it was closed or broke."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: Connection | None = None

    def get(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
