"""`postroom port`: list send ports and change their states."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.options import CommandOptions, common_options, names_argument, pass_options, reason_option
from postroom.cli.rendering.output import Format, show_record, show_rows
from postroom.cli.state_commands import add_state_commands

if TYPE_CHECKING:
    from postroom.messagebox.configuration.endpoints import Transport
    from postroom.operations.ports.send_ports import PortListing


@click.group(cls=CommandGroup)
def port() -> None:
    """List, enlist, start, stop, retry and unenlist send ports.

    \b
    Example:
      postroom port stop Europe
    """


@port.command("list")
@click.option("--application", metavar="NAME", help="Only ports of this application.")
@common_options
@pass_options
def list_(options: CommandOptions, application: str | None) -> None:
    """List the send ports, with the number of messages in their queues.

    \b
    Example:
      postroom port list --application orders
    """
    from postroom.operations.deployment.applications import check_application
    from postroom.operations.ports.send_ports import list_ports

    with open_messagebox(options) as connection:
        check_application(connection, application)
        rows = [_to_row(port) for port in list_ports(connection, application=application)]
    columns = ["name", "state", "application", "host", "waiting", "retrying", "scheduled", "suspended", "filter", "uri"]
    if any(row["paused_since"] for row in rows):
        columns[2:2] = ["paused_since", "paused_because"]
    show_rows(
        rows,
        columns,
        options.output,
        empty="No send ports. Apply an application: postroom apply APP",
        optional=["uri", "application", "paused_since", "scheduled", "retrying", "host"],
    )


@port.command()
@click.argument("name")
@common_options
@pass_options
def show(options: CommandOptions, name: str) -> None:
    """Show the configuration and state of a send port.

    \b
    Example:
      postroom port show Europe
    """
    from postroom.operations.describe import describe_value
    from postroom.operations.ports.send_ports import get_send_port, list_ports
    from postroom.operations.ports.sinks import get_guarantee

    with open_messagebox(options) as connection:
        port_id = get_send_port(connection, name).port_id
        (found,) = (port for port in list_ports(connection) if port.port.port_id == port_id)
    row = _to_row(found)
    if found.port.adapter_type.is_sink:
        row["guarantee"] = get_guarantee(found.port)
    if options.output is Format.TABLE:
        backup = row.pop("backup") or {}
        for name, adapter in (("adapter", row.pop("adapter")), ("backup adapter", backup.pop("adapter", {}))):
            row |= {
                f"{name} {key}": describe_value(value) if isinstance(value, dict | list) else value
                for key, value in adapter.items()
            }
        row |= {f"backup {key}": value for key, value in backup.items()}
    show_record(row, options.output)


@port.command()
@names_argument
@reason_option
@common_options
@pass_options
def retry(options: CommandOptions, names: tuple[str, ...]) -> None:
    """Attempt the messages of ports now that wait for their next attempt. Use it after a receiver was fixed.

    Each attempt counts. If a circuit breaker has paused the port, it sends one message, and all others after a success.

    \b
    Example:
      postroom port retry Warehouse --reason "the certificate was renewed"
    """
    from dataclasses import asdict

    from postroom.operations.all_or_none import all_or_none
    from postroom.operations.ports import send_ports

    with open_messagebox(options) as connection:
        rows = [asdict(done) for done in all_or_none(connection, names, send_ports.retry)]
    show_rows(rows, ["name", "retried", "is_probed"], options.output)


add_state_commands(
    port,
    "postroom.operations.ports.send_ports",
    example="Europe",
    enlist="Create the subscriptions of bound ports. Matching messages are suspended until the port is started.",
    start="Start ports. Messages that were suspended because the port was stopped are resumed first.",
    stop="Stop ports. New matching messages are suspended. Queued messages are still sent.",
    unenlist="Remove the subscriptions of ports. Existing instances stay.",
)


def _to_row(listing: PortListing) -> dict[str, Any]:
    from postroom.operations.describe import describe_value
    from postroom.operations.ports.send_ports import describe_maps, describe_pipeline
    from postroom.operations.redaction import redact_adapter

    port = listing.port
    return {
        "name": port.name,
        "state": port.state.name.lower(),
        "application": listing.application,
        "host": listing.host,
        "filter": port.filter,
        "priority": port.priority,
        "adapter": redact_adapter(port.adapter_json),
        "uri": port.uri,
        "maps": describe_maps(port.maps_json),
        "pipeline": describe_pipeline(port.pipeline_json),
        "two_way": port.is_two_way,
        "receive_pipeline": describe_value(port.response_json["pipeline"]) if port.response_json else None,
        "retry_count": port.retry_count,
        "retry_interval_seconds": port.retry_interval.total_seconds(),
        "service_window": None if port.service_window is None else str(port.service_window),
        "expire_after_seconds": None if port.expire_after is None else port.expire_after.total_seconds(),
        "circuit_breaker": None if port.circuit_breaker is None else str(port.circuit_breaker),
        "paused_since": None if listing.circuit is None else listing.circuit.opened_at,
        "paused_by": None if listing.circuit is None else listing.circuit.opened_by,
        "paused_because": None if listing.circuit is None else listing.circuit.reason,
        "next_probe_at": None if listing.circuit is None else listing.circuit.next_probe_at,
        "backup": None if port.backup is None else _to_backup(port.backup),
        "route_failures": port.route_failures,
        "ordered": port.ordered,
        "stop_on_failure": port.stop_on_failure,
        "waiting": listing.waiting,
        "retrying": listing.retrying,
        "scheduled": listing.scheduled,
        "next_attempt_at": listing.next_attempt_at,
        "suspended": listing.suspended,
        "port_id": port.port_id,
        "transport_id": port.transport_id,
        "subscription_id": port.subscription_id,
        "groups": listing.groups,
        "description": port.description,
    }


def _to_backup(backup: Transport) -> dict[str, Any]:
    from postroom.operations.redaction import redact_adapter

    return {
        "adapter": redact_adapter(backup.adapter_json),
        "uri": backup.uri,
        "retry_count": backup.retry_count,
        "retry_interval_seconds": backup.retry_interval.total_seconds(),
        "service_window": None if backup.service_window is None else str(backup.service_window),
    }
