"""Connections to the MessageBox, and transactions that are repeated after a conflict.

Errors of psycopg are translated to errors of ``postroom.errors`` here. Modules above do not catch errors of psycopg.
"""

from __future__ import annotations

import getpass
import itertools
import re
import select
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import psycopg
from psycopg.abc import RV, Params, PQGen
from psycopg.adapt import Transformer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.errors import error_from_result
from psycopg.pq import DiagnosticField, ExecStatus, Format, TransactionStatus
from psycopg.pq.abc import PGresult
from psycopg.rows import class_row

from postroom.errors import DefinitionError, LockTimeout, MessageBoxUnavailable, TransactionConflict
from postroom.messagebox.postgres_errors import translate_errors, translate_psycopg_error
from postroom.messagebox.statements import statement
from postroom.processes.backoff import Backoff

Connection = psycopg.Connection[tuple[Any, ...]]
Connect = Callable[[], Connection]
T = TypeVar("T")
#: An expression with %s or %b for each argument, and the arguments.
Call = tuple[str, tuple[object, ...]]

_OPTIONS = (
    "-c search_path=messagebox,management,pg_temp -c client_min_messages=warning"
    # The server detects a client machine that is gone. Both are ignored on Unix sockets.
    " -c tcp_keepalives_idle=5 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3"
)
_SETTINGS = {
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "connect_timeout": "10",
}

#: The settings of sessions that hold session locks: PostgreSQL ends the session of a frozen process.
IDLE_TIMEOUTS = {"idle_session_timeout": "8s", "idle_in_transaction_session_timeout": "8s"}

#: The engine runs few statements often. So a statement is prepared when it was executed this often.
_PREPARE_THRESHOLD = 3
#: The statement is not prepared any more, or a function that it calls has other columns now.
_NOT_PREPARED = (b"26000", b"0A000")

#: Maximum number of attempts of a transaction that conflicts with others.
_MAX_ATTEMPTS = 8
_BACKOFF = Backoff(first=0.005, longest=0.64)

#: How long one attempt of an operator's command waits for a lock, and how long all attempts take together.
_LOCK_TIMEOUT = Backoff(first=0.1, longest=2.0)
_LOCK_SECONDS = 30.0


class _MessageBoxConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection that raises Postroom's errors. Every statement, COPY, commit and rollback goes through ``wait``,
    except those of ``execute_blocking``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        #: How often ``execute_blocking`` has executed each query outside of a transaction.
        self._uses: Counter[bytes] = Counter()
        #: The names of the queries that it has prepared.
        self._statement_names: dict[bytes, bytes] = {}
        self._statement_numbers = itertools.count(1)

    def execute_blocking(self, query: bytes, values: list[bytes | None], formats: list[Format]) -> PGresult:
        """Execute a query by libpq's blocking call. Return its binary result, or its error.

        A query is prepared if it is used often outside of transactions. After a rollback the driver drops all prepared
        statements of the session. Then this one is prepared again, which is not possible in a transaction."""
        with self.lock:
            if self.info.transaction_status is TransactionStatus.IDLE:
                self._uses[query] += 1
                if self._uses[query] > _PREPARE_THRESHOLD:
                    name = self._statement_names.get(query)
                    if name is None:
                        # Each time under a new name: one that does not fit its function any more still exists.
                        name = self._statement_names[query] = b"blocking_%d" % next(self._statement_numbers)
                        self.pgconn.prepare(name, query)
                    result = self.pgconn.exec_prepared(name, values, formats, Format.BINARY)  # type: ignore[arg-type]  # None is null
                    if result.error_field(DiagnosticField.SQLSTATE) not in _NOT_PREPARED:
                        return result
                    del self._statement_names[query]
            return self.pgconn.exec_params(query, values, param_formats=formats, result_format=Format.BINARY)

    def wait(self, gen: PQGen[RV], interval: float = 0.1, timeout: float | None = None) -> RV:
        if timeout is not None:  # notifies() passes a timeout, and catches psycopg's error
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


def _get_os_user() -> str:
    """Return the user of this process, or an empty text if the account has no name."""
    try:
        return getpass.getuser()
    except (OSError, KeyError):
        return ""


def connect(
    url: str,
    *,
    user: str | None = None,
    application_name: str = "postroom",
    server_settings: Mapping[str, str] | None = None,
    socket_settings: Mapping[str, str] | None = None,
) -> Connection:
    """Open a connection in autocommit mode. Use ``transaction`` for statements that belong together.

    The URL overrides ``socket_settings`` (of libpq), which override the defaults. ``server_settings`` are settings of
    PostgreSQL for this session.
    """
    given = _parse_url(url)
    settings: dict[str, Any] = {**_SETTINGS, "application_name": application_name, **(socket_settings or {}), **given}
    # The URL may contain options, but the search path is always needed.
    # The audit shows the user of this process beside the login.
    configured = {"postroom.os_user": _get_os_user(), **(server_settings or {})}
    options = [_OPTIONS, *(f"-c {name}={_escape_option(value)}" for name, value in configured.items())]
    settings["options"] = " ".join([*options, str(given.get("options") or "")]).strip()
    if user is not None:
        settings["user"] = user
    try:
        connection = _MessageBoxConnection.connect(make_conninfo(**settings), autocommit=True)
    except psycopg.OperationalError as error:
        raise MessageBoxUnavailable(
            "The MessageBox cannot be reached.",
            why=str(error).strip().splitlines()[0],
            hint=_suggest_fix(str(error)),
        ) from error
    connection.prepare_threshold = _PREPARE_THRESHOLD
    return connection


def _escape_option(value: str) -> str:
    return re.sub(r"([\\\s])", r"\\\1", value)


def _suggest_fix(error: str) -> str:
    """Return a hint for an error of the server. A server that rejects a login is running."""
    if re.search(r"password|authentication failed|pg_hba\.conf|role .* does not exist|not permitted to log in", error):
        return "PostgreSQL is running. Correct the login or its password in the URL, ~/.pgpass or PGPASSWORD."
    if re.search("database .* does not exist", error):
        return "PostgreSQL is running. Correct the name of the database, or create it with 'createdb NAME'."
    return "Check that PostgreSQL is running there. 'postroom up' starts the embedded server."


def _parse_url(url: str) -> dict[str, Any]:
    try:
        return conninfo_to_dict(url)
    except psycopg.ProgrammingError as error:
        # A quoted text may be a password.
        why = re.sub(r'"[^"]*"', '"…"', str(error).strip().partition("\n")[0])
        raise DefinitionError(
            "The URL of the database is not valid.",
            why=f"PostgreSQL's client reports: {why}.",
            hint="Write it as postgresql://user@server/database.",
        ) from None


def read_value(connection: Connection, query: str, *arguments: object, **named: object) -> Any:
    """Return the first column of the row that a query always returns. It has arguments by position or by name."""
    row = connection.execute(query, named or arguments).fetchone()
    assert row is not None
    return row[0]


def read_records(connection: Connection, record: type[T], query: str, parameters: Params = ()) -> list[T]:
    """Return the rows of a query as records. The columns have the names of the fields."""
    with connection.cursor(row_factory=class_row(record)) as cursor:
        return cursor.execute(query, parameters).fetchall()


def get_backend_pid(connection: Connection) -> int:
    """Return the session that the next statement runs in. Behind a pooler it can change."""
    return int(read_value(connection, "SELECT pg_backend_pid()"))


def use_one_snapshot(connection: Connection) -> None:
    """Let all statements of this transaction, which only reads, see the same snapshot. Call it first."""
    connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


@dataclass(frozen=True, kw_only=True)
class Precondition:
    """A change that has to succeed before anything else is written: an SQL expression that changes rows, and is false
    if it finds none to change.

    Another expression can depend on it in the same statement, so the two need no transaction around them."""

    expression: str
    arguments: tuple[object, ...]

    def apply(self, connection: Connection) -> bool:
        """Make the change. Return False if there was nothing to change."""
        return bool(read_value(connection, f"SELECT {self.expression}", *self.arguments))


def transaction(connection: Connection, work: Callable[[Connection], T], *, has_one_statement: bool = False) -> T:
    """Run ``work`` in one transaction; repeat it from its start after a deadlock or a serialization failure. Work that
    has one statement commits with it, without further round trips."""
    attempt = 0
    while True:
        attempt += 1
        try:
            with nullcontext() if has_one_statement else connection.transaction():
                return work(connection)
        except TransactionConflict:
            if attempt == _MAX_ATTEMPTS:
                raise
            time.sleep(_BACKOFF.delay(attempt))


def operator_transaction(
    connection: Connection, work: Callable[[Connection], T], *, lock_seconds: float = _LOCK_SECONDS
) -> T:
    """Run ``work`` like ``transaction``, for the command of an operator.

    Publishers queue behind a command that waits for the routing lock. So it waits for a short time only, and tries
    again. Raise LockTimeout after ``lock_seconds``, and name the sessions that hold the routing lock. Inside another
    transaction only the outer one waits and tries again.
    """
    if connection.info.transaction_status is not TransactionStatus.IDLE:
        return transaction(connection, work)
    deadline = time.monotonic() + lock_seconds

    def work_with_timeout(connection: Connection) -> T:
        connection.execute("SELECT set_config('lock_timeout', %s, true)", (f"{int(lock_timeout * 1000)}ms",))
        return work(connection)

    attempt = 0
    while True:
        attempt += 1
        lock_timeout = _LOCK_TIMEOUT.delay(attempt)
        try:
            return transaction(connection, work_with_timeout)
        except LockTimeout as error:
            if time.monotonic() >= deadline:
                raise LockTimeout(
                    f"The change was not made: other sessions held locks for {lock_seconds:g} s.",
                    why=_describe_routing_locks(connection) or error.why,
                    hint="Try again. If one of these processes hangs, end it.",
                ) from error
            time.sleep(lock_timeout)


def _describe_routing_locks(connection: Connection) -> str:
    rows = connection.execute(statement("queries/routing_lock_holders")).fetchall()
    sessions = [f"{application} (user {user}, session {session})" for session, application, user in rows]
    return f"The routing is locked by {', '.join(sessions)}." if sessions else ""


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
    """A connection that is opened at its first use, and again after it was closed or lost."""

    def __init__(self, connect: Connect) -> None:
        self._connect = connect
        self._connection: Connection | None = None

    def get(self) -> Connection:
        if self._connection is None or self._connection.closed:
            self._connection = self._connect()
        return self._connection

    def get_working(self) -> Connection:
        """Return the connection. Open it again if the server has closed it since its last use."""
        if not is_working(self.get()):
            self.close()
        return self.get()

    def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


def is_working(connection: Connection) -> bool:
    """Return False if the server has closed the connection since its last use."""
    try:
        if _has_input(connection):
            connection.execute("SELECT 1")
        return True
    except MessageBoxUnavailable:
        return False


def _has_input(connection: Connection) -> bool:
    """Return True if the server has sent something since the last statement. It does so before it closes a
    connection. A statement to find that out would cost each call a round trip."""
    poll = select.poll()
    poll.register(connection.fileno(), select.POLLIN)
    return bool(poll.poll(0))


def read_blocking(
    connection: Connection, query: str, make_row: Callable[[Sequence[Any]], T], *arguments: object
) -> list[T]:
    """Return the rows of a SELECT that ``call_blocking`` runs, each as ``make_row`` builds it."""
    result = call_blocking(connection, query, *arguments)
    rows = Transformer(connection)
    rows.set_pgresult(result)
    return rows.load_rows(0, result.ntuples, make_row)


def select_calls(connection: Connection, calls: Sequence[Call], *, precondition: Precondition | None = None) -> bool:
    """Run one SELECT that calls functions in this order. Return False without calling them if the precondition has
    changed nothing."""
    query = "SELECT " + ", ".join(expression for expression, _ in calls)
    arguments = [argument for _, arguments in calls for argument in arguments]
    if precondition is not None:
        query += f" WHERE {precondition.expression}"
        arguments += precondition.arguments
    return call_blocking(connection, query, *arguments).ntuples == 1


def call_blocking(connection: Connection, query: str, *arguments: object) -> PGresult:
    """Run one SELECT by libpq's blocking call. Return the binary result.

    The blocking call releases the interpreter lock once, until the whole result has arrived. The driver's execute
    acquires the lock several times, and waits for it each time while other threads are busy. It also takes four times
    the CPU time. Raises the same errors as ``execute``.
    """
    with translate_errors():
        encoded = [_encode(argument) for argument in arguments]
        formats = [Format.BINARY if isinstance(argument, bytes) else Format.TEXT for argument in arguments]
        assert isinstance(connection, _MessageBoxConnection)
        result = connection.execute_blocking(_number_parameters(query), encoded, formats)
        if result.status != ExecStatus.TUPLES_OK:
            error = error_from_result(result, encoding=connection.info.encoding)
            if error.sqlstate is None:  # an error of libpq: the connection was lost, and libpq may not have noticed yet
                connection.close()
                raise psycopg.OperationalError(str(error))
            raise error
    return result


@cache
def _number_parameters(query: str) -> bytes:
    """Return a query with $1, $2 ... instead of %s and %b, as libpq expects it."""
    numbers = itertools.count(1)
    return re.sub("%[sb]", lambda _: f"${next(numbers)}", query).encode()


def _encode(argument: object) -> bytes | None:
    if argument is None or isinstance(argument, bytes):
        return argument
    text = _format_list(argument) if isinstance(argument, list) else str(argument)
    if "\0" in text:  # libpq would cut the text off there
        raise psycopg.DataError("a text has a NUL character")
    return text.encode()


def _format_list(values: list[object]) -> str:
    """Return an array in PostgreSQL's text format."""
    return "{" + ",".join("NULL" if value is None else f'"{_escape(str(value))}"' for value in values) + "}"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
