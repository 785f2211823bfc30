"""`postroom queue`: show the queues of the hosts."""

from __future__ import annotations

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.options import CommandOptions, common_options, pass_options
from postroom.cli.rendering.output import show_rows


@click.group(cls=CommandGroup)
def queue() -> None:
    """Show the queues of the hosts.

    \b
    Example:
      postroom queue list
    """


@queue.command("list")
@click.option("--all", "everything", is_flag=True, help="Also show empty queues.")
@common_options
@pass_options
def list_(options: CommandOptions, everything: bool) -> None:
    """Count the messages in the queues of each host, with the age of the oldest.

    \b
    Example:
      postroom queue list -o json
    """
    from postroom.operations.instances.listing import count_queues

    with open_messagebox(options) as connection:
        rows = [count for count in count_queues(connection) if count.count or everything]
    show_rows(rows, ["host", "state", "count", "age"], options.output, empty="All queues are empty.")
