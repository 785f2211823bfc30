"""The options that select instances, and the query that they make."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from postroom.cli.options import ID

if TYPE_CHECKING:
    from postroom.operations.connection import Connection
    from postroom.operations.instances.queries import InstanceQuery
    from postroom.operations.short_ids import ShortId, ShortIdKind

Command = TypeVar("Command", bound=Callable[..., Any])

_STATES = {
    "ready": ("READY_TO_RUN",),
    "active": ("ACTIVE",),
    "retrying": ("RETRYING",),
    "waiting": ("DEHYDRATED",),
    "scheduled": ("SCHEDULED",),
    "suspended": ("SUSPENDED", "SUSPENDED_NOT_RESUMABLE"),
    "resumable": ("SUSPENDED",),
    "not-resumable": ("SUSPENDED_NOT_RESUMABLE",),
}


def condition_options(command: Command) -> Command:
    """Add the options that select instances."""
    for option in reversed(
        (
            click.option(
                "--state",
                "states",
                multiple=True,
                type=click.Choice(list(_STATES)),
                help="Only instances in this state; may be repeated.",
            ),
            click.option("--host", metavar="NAME", help="Only instances of this host."),
            click.option(
                "--port",
                metavar="NAME",
                help="Only instances of this send port, group, orchestration, receive port or location.",
            ),
            click.option("--removed", is_flag=True, help="Only instances of ports and locations that were removed."),
            click.option("--error", metavar="CODE", help="Only instances with this error code, such as DELIVERY."),
            click.option("--message", type=ID, help="Only instances that refer to this message."),
            click.option("--interchange", type=ID, help="Only instances whose messages belong to this interchange."),
        )
    ):
        command = option(command)
    return command


def build_query(connection: Connection, conditions: Mapping[str, Any]) -> InstanceQuery:
    """Return the query for the conditions. Raise NotFound if one of them names what does not exist."""
    from postroom.operations.instances.queries import InstanceQuery, InstanceState, check_names
    from postroom.operations.short_ids import find_id

    def find(given: ShortId | None, kind: ShortIdKind) -> uuid.UUID | None:
        return None if given is None else find_id(connection, given, kind)

    states = [InstanceState[name] for chosen in conditions["states"] for name in _STATES[chosen]]
    query = InstanceQuery(
        states=states or None,
        host=conditions["host"],
        port=conditions["port"],
        removed=conditions["removed"],
        error_code=conditions["error"],
        message_id=find(conditions["message"], "message"),
        interchange_id=find(conditions["interchange"], "interchange"),
    )
    check_names(connection, query)
    return query
