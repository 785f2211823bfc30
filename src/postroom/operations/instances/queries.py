"""Queries for instances, and the names in them."""

from __future__ import annotations

from postroom.agent.error_messages import FAILURE_CODES
from postroom.errors import NONE_APPLIED, NotFound, suggest_names
from postroom.messagebox.configuration.hosts import find_host
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import GroupBy as GroupBy
from postroom.messagebox.instances import Instance as Instance
from postroom.messagebox.instances import InstanceQuery as InstanceQuery
from postroom.messagebox.instances import InstanceState as InstanceState
from postroom.messagebox.instances import count_instances as count_instances
from postroom.messagebox.instances import find_new_name, read_service_names, read_suspended_codes
from postroom.messagebox.instances import list_instances as list_instances

#: The error codes of suspended instances: the codes of failures, and of states that are not errors. See
#: docs/reference/errors.md.
ERROR_CODES = frozenset(
    {
        *FAILURE_CODES,
        "PORT_STOPPED",
        "PORT_GONE",
        "LOOKUP",
        "OPERATOR",
        "NO_RECEIVER",
        "SERVICE_WINDOW",
        "PROGRAM",
        "SUBSCRIPTION_EXPIRED",
        "CORRELATION",
        "LOOP",
        "ORCHESTRATION",
        "ORCHESTRATION_CODE",
        "JOURNAL",
        "JOURNAL_FULL",
        "STEP",
        "STEP_RESULT",
        "SUSPENDED_ITSELF",
    }
)


def check_names(connection: Connection, query: InstanceQuery) -> None:
    """Raise NotFound if the host, port or error code of the query does not exist.

    An unknown name is a typo, not an empty result."""
    if query.host is not None:
        find_host(connection, query.host)
    if query.port is not None:
        names = read_service_names(connection)
        if query.port not in names:
            what = f"There is no port, send port group, receive location or orchestration {query.port!r}."
            new_name = find_new_name(connection, query.port)
            if new_name in names:
                raise NotFound(what, hint=f"It was renamed to {new_name!r}.")
            raise NotFound(what, hint=suggest_names(query.port, names, "There are", none=NONE_APPLIED))
    codes = sorted(ERROR_CODES | read_suspended_codes(connection)) if query.error_code is not None else []
    if query.error_code is not None and query.error_code not in codes:
        raise NotFound(
            f"There is no error code {query.error_code!r}.", hint=suggest_names(query.error_code, codes, "There are")
        )
