"""Connections to the MessageBox, and transactions that try again when PostgreSQL asks for it."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import psycopg
from psycopg import errors as pg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from postroom.backoff import Backoff
from postroom.errors import DefinitionError, Unavailable

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

#: A whole transaction is tried again after these: another one was in the way, and nothing of ours was kept.
_TRY_AGAIN = (pg.DeadlockDetected, pg.SerializationFailure)
_ATTEMPTS = 8
_BACKOFF = Backoff(first=0.005, longest=0.64)


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
        connection = psycopg.connect(make_conninfo(**settings), autocommit=True)
    except psycopg.OperationalError as error:
        raise Unavailable(
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
    """Runs ``work`` in one transaction, again from its start after a deadlock or a serialisation failure."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with connection.transaction():
                return work(connection)
        except _TRY_AGAIN:
            if attempt == _ATTEMPTS:
                raise
            time.sleep(_BACKOFF.delay(attempt))
    raise AssertionError("unreachable")


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
            with suppress(psycopg.Error):
                connection.close()
