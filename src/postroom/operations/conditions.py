"""The names that a question about instances is made of: one that does not exist is a slip, not an empty answer."""

from __future__ import annotations

from postroom.agent.error_reports import FAILURE_CODES
from postroom.errors import NotFound, nearest
from postroom.messagebox.configuration import host_named
from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement
from postroom.operations.instances import InstanceQuery

#: The codes of suspended instances, with and without an error behind them; docs/reference/errors.md lists them.
OWN_CODES = frozenset({*FAILURE_CODES, "PORT_STOPPED", "PORT_GONE", "OPERATOR", "NO_RECEIVER"})


def check_names(connection: Connection, query: InstanceQuery) -> None:
    """NotFound if the host, the port or the error code of the query is none that there is, or can be."""
    if query.host is not None:
        host_named(connection, query.host)
    if query.port is not None:
        names = [name for (name,) in connection.execute(statement("queries/list_service_names"))]
        if query.port not in names:
            what = f"There is no send port, send port group, receive port or receive location {query.port!r}."
            raise NotFound(what, hint=nearest(query.port, names, "There are", none="none; run postroom apply first"))
    if query.error_code is not None and query.error_code not in (codes := sorted(_codes(connection))):
        raise NotFound(
            f"There is no error code {query.error_code!r}.", hint=nearest(query.error_code, codes, "There are")
        )


def _codes(connection: Connection) -> set[str]:
    # An adapter may have brought codes of its own.
    seen = connection.execute("SELECT DISTINCT error_code FROM suspended_queue WHERE error_code IS NOT NULL")
    return {*OWN_CODES, *(code for (code,) in seen)}
