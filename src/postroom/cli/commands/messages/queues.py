"""`postroom queue`: show the queues of the hosts."""

from __future__ import annotations

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.list_commands import add_list_command


@click.group(cls=CommandGroup)
def queue() -> None:
    """Show the queues of the hosts.

    \b
    Example:
      postroom queue list
    """


add_list_command(
    queue,
    "postroom.operations.hosts:count_queues",
    "host state count age",
    help="Count the messages in the queues of each host, with the age of the oldest.",
    example="Example:\n  postroom queue list -o json",
    options=[click.option("--all", "everything", is_flag=True, help="Also show empty queues.")],
    empty="All queues are empty.",
)
