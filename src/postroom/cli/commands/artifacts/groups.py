"""`postroom group`: send port groups and their states."""

from __future__ import annotations

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.list_commands import add_list_command, add_show_command
from postroom.cli.state_commands import add_state_commands


@click.group(cls=CommandGroup)
def group() -> None:
    """List, enlist, start, stop and unenlist send port groups.

    A group and its members have separate states: a message that comes through a group is sent while both are started.
    The application declares the members.

    \b
    Example:
      postroom group stop Everyone
    """


add_list_command(
    group,
    "postroom.operations.ports.groups:list_groups",
    "name state application members filter",
    help="List the send port groups.",
    example="Example:\n  postroom group list --application orders",
    options=[click.option("--application", metavar="NAME", help="Only groups of this application.")],
    empty="No send port groups. Declare one with app.send_port_group(...), and apply the application.",
)


add_show_command(
    group,
    "postroom.operations.ports.groups:get_group_details",
    help="Show a send port group, its members, and what happens to messages that come through it.",
    example="Everyone",
    tables={"members": ["member", "state", "through_the_group", "subscription_id"]},
    empty="It has no members.",
)

add_state_commands(
    group,
    "postroom.operations.ports.groups",
    example="Everyone",
    enlist="Create the subscriptions of bound groups. Matching messages are suspended until the group is started.",
    start="Start groups. Started members send what comes through the group, suspended messages first.",
    stop="Stop groups. "
    "Messages that come through the group are suspended. Members still send what they receive directly.",
    unenlist="Remove the subscriptions of groups. Existing instances stay.",
)
