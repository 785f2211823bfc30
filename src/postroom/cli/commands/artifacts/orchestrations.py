"""`postroom orchestration`: list orchestrations and change their states."""

from __future__ import annotations

from operator import not_

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.list_commands import add_list_command, add_show_command
from postroom.cli.state_commands import add_state_commands


@click.group(cls=CommandGroup)
def orchestration() -> None:
    """List, enlist, start, stop and unenlist orchestrations.

    Messages activate the newest version of an orchestration, so these commands change the newest version. Instances
    continue in every state. To suspend or terminate them: postroom instance.

    \b
    Example:
      postroom orchestration stop procure
    """


add_list_command(
    orchestration,
    "postroom.operations.orchestrations.states:list_orchestrations",
    "name version newest state application host instances waiting_instances suspended_instances queued_messages"
    " suspended_messages filter problem",
    help="List the orchestrations in all versions, with the number of their instances.",
    example="Example:\n  postroom orchestration list --application procurement",
    options=[click.option("--application", metavar="NAME", help="Only orchestrations of this application.")],
    empty="No orchestrations. Apply an application: postroom apply APP",
    shown_if={"newest": not_, "problem": bool},
)


add_show_command(
    orchestration,
    "postroom.operations.orchestrations.states:get_orchestration_details",
    help="Show the configuration and state of the newest version of an orchestration.",
    example="procure",
)

add_state_commands(
    orchestration,
    "postroom.operations.orchestrations.states",
    example="procure",
    enlist="Create the activation subscriptions of bound orchestrations. "
    "Messages that match are suspended until the start.",
    start="Start orchestrations. Messages that were suspended because they were stopped activate instances first.",
    stop="Stop orchestrations. Messages that would activate an instance are suspended. Instances continue.",
    unenlist="Remove the activation subscriptions of orchestrations. Instances continue.",
)
