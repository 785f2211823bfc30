"""`postroom orchestration`: list orchestrations, change their states, and bind their logical ports."""

from __future__ import annotations

from operator import not_

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.list_commands import add_list_command, add_show_command
from postroom.cli.options import CommandOptions, change_options
from postroom.cli.rendering.output import show_rows
from postroom.cli.state_commands import add_state_commands

#: The columns of a changed binding.
_CHANGE = ["orchestration", "logical_port", "before", "after"]


@click.group(cls=CommandGroup)
def orchestration() -> None:
    """List, enlist, start, stop, unenlist and bind orchestrations.

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
    help="Show the configuration, state and bindings of the newest version of an orchestration.",
    example="procure",
    tables={"bindings": ["logical_port", "calls", "target", "kind", "state", "bound_by"]},
    empty="It sends to no port.",
)


@orchestration.command()
@click.argument("name", metavar="ORCHESTRATION")
@click.argument("logical_port", metavar="LOGICAL_PORT")
@click.argument("target", required=False)
@click.option("--direct", is_flag=True, help="Publish for whoever subscribes.")
@change_options
def bind(options: CommandOptions, name: str, logical_port: str, target: str | None, direct: bool) -> None:
    """Bind a logical port of an orchestration, the name that its code sends to, to a send port or a send port group.

    The binding applies to all versions, from the next message on, and stays after an apply, unless the application
    declares one for the logical port.

    \b
    Examples:
      postroom orchestration bind procure Shipping Courier
      postroom orchestration bind procure Shipping --direct --reason "several receivers"
    """
    from postroom.operations.orchestrations.bindings import bind

    if (target is None) is not direct:
        raise click.UsageError("Give either TARGET or --direct.")
    with open_messagebox(options) as connection:
        change = bind(connection, name, logical_port, target)
    show_rows([change], _CHANGE, options.output)


@orchestration.command()
@click.argument("name", metavar="ORCHESTRATION")
@click.argument("logical_port", metavar="LOGICAL_PORT")
@change_options
def unbind(options: CommandOptions, name: str, logical_port: str) -> None:
    """Bind a logical port again as its application declares: by default to the send port with the same name.

    \b
    Example:
      postroom orchestration unbind procure Shipping
    """
    from postroom.operations.orchestrations.bindings import unbind

    with open_messagebox(options) as connection:
        change = unbind(connection, name, logical_port)
    show_rows([change], _CHANGE, options.output)


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
