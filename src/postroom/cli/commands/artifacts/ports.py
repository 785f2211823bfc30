"""`postroom port`: list send ports and change their states."""

from __future__ import annotations

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.list_commands import add_list_command
from postroom.cli.options import CommandOptions, change_options, common_options, names_argument
from postroom.cli.rendering.output import Format, show_record, show_rows
from postroom.cli.state_commands import add_state_commands


@click.group(cls=CommandGroup)
def port() -> None:
    """List, enlist, start, stop, retry and unenlist send ports.

    \b
    Example:
      postroom port stop Europe
    """


add_list_command(
    port,
    "postroom.operations.ports.send_ports:list_ports",
    "name state paused_since paused_because application host waiting retrying scheduled suspended filter uri",
    help="List the send ports, with the number of messages in their queues.",
    example="Example:\n  postroom port list --application orders",
    options=[click.option("--application", metavar="NAME", help="Only ports of this application.")],
    empty="No send ports. Apply an application: postroom apply APP",
    optional="uri application paused_since scheduled retrying host",
    shown_if={"paused_since": bool, "paused_because": bool},
)


@port.command()
@click.argument("name")
@common_options
def show(options: CommandOptions, name: str) -> None:
    """Show the configuration and state of a send port.

    \b
    Example:
      postroom port show Europe
    """
    from postroom.operations.describe import describe_value
    from postroom.operations.ports.send_ports import get_port_details
    from postroom.operations.records import to_row

    with open_messagebox(options) as connection:
        row = to_row(get_port_details(connection, name))
    if options.output is Format.TABLE:
        backup = to_row(row.pop("backup") or {})
        for name, adapter in (("adapter", row.pop("adapter")), ("backup adapter", backup.pop("adapter", {}))):
            row |= {
                f"{name} {key}": describe_value(value) if isinstance(value, dict | list) else value
                for key, value in adapter.items()
            }
        row |= {f"backup {key}": value for key, value in backup.items()}
    show_record(row, options.output)


@port.command()
@names_argument
@change_options
def retry(options: CommandOptions, names: tuple[str, ...]) -> None:
    """Attempt the messages of ports now that wait for their next attempt. Use it after a receiver was fixed.

    Each attempt counts. If a circuit breaker has paused the port, it sends one message, and all others after a success.

    \b
    Example:
      postroom port retry Warehouse --reason "the certificate was renewed"
    """
    from postroom.operations.all_or_none import all_or_none
    from postroom.operations.ports import send_ports

    with open_messagebox(options) as connection:
        rows = all_or_none(connection, names, send_ports.retry)
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
