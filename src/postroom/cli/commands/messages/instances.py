"""`postroom instance`: list, resume, suspend, reroute and terminate service instances."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.commands.messages.bad_rows import resume_rows, save_rows
from postroom.cli.commands.messages.instance_conditions import build_query, condition_options
from postroom.cli.commands.messages.instance_operations import reroute, resume, skip, suspend, terminate
from postroom.cli.commands.messages.journals import save_journal
from postroom.cli.connection import open_messagebox
from postroom.cli.list_commands import add_list_command
from postroom.cli.options import ID, CommandOptions, common_options, limit_option
from postroom.cli.rendering.output import Format, report_truncation, show_record, show_rows
from postroom.cli.rendering.story import show_story, write_graph
from postroom.operations.records import to_row

if TYPE_CHECKING:
    from postroom.operations.instances.queries import GroupBy
    from postroom.operations.short_ids import ShortId


@click.group(cls=CommandGroup)
def instance() -> None:
    """List, resume, suspend, reroute and terminate service instances.

    An instance is a message on its way to one subscriber, a received message that could not be published, or an
    orchestration that has not ended. An orchestration and an ordered send port can have several messages.

    \b
    Example:
      postroom instance list --state suspended
    """


@instance.command("list")
@condition_options
@limit_option(default=50)
@click.option(
    "--group-by",
    type=click.Choice(["host", "port", "error", "reason", "adapter", "uri"]),
    help="Count the instances by this column instead of listing them.",
)
@common_options
def list_(options: CommandOptions, /, limit: int, group_by: GroupBy | None, **conditions: Any) -> None:
    """List the instances, the latest first, or count them by a column.

    \b
    Examples:
      postroom instance list --state suspended --port Europe
      postroom instance list --group-by reason
    """
    from postroom.operations.instances.queries import count_instances, list_instances

    with open_messagebox(options) as connection:
        query = build_query(connection, conditions)
        if group_by is not None:
            counts = [
                {
                    group_by: count.value,
                    "state": count.state,
                    "count": count.count,
                    "oldest": count.oldest,
                    "newest": count.newest,
                }
                for count in count_instances(connection, query, group_by)
            ]
            columns = [group_by, "state", "count", "oldest", "newest"]
            show_rows(counts, columns, options.output, empty="No instances.")
            return
        found = list_instances(connection, replace(query, limit=limit + 1))
    columns = ["instance_id", "state", "service", "host", "attempt", "since", "error_code", "reason"]
    if any(instance.retry_at is not None for instance in found):
        columns.insert(5, "retry_at")
    if any(instance.timer_at is not None for instance in found):
        columns.insert(5, "timer_at")
    if any(instance.messages > 1 for instance in found):
        columns.insert(4, "messages")
    rows: list[object] = [*found[:limit]]
    if options.output is Format.TABLE:
        rows = [{**to_row(instance), "service": instance.display_name} for instance in found[:limit]]
    show_rows(
        rows,
        columns,
        options.output,
        empty="No instances.",
        optional=["attempt", "host", "since", "error_code", "messages", "retry_at", "timer_at"],
    )
    report_truncation(len(found), limit, options.output)


@instance.command()
@click.argument("instance_id", type=ID, metavar="ID")
@click.option(
    "--graph",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Draw the story of an orchestration instance into this file, as a Mermaid diagram.",
)
@common_options
def show(options: CommandOptions, instance_id: ShortId, graph: Path | None) -> None:
    """Show an instance, why it is suspended, and what to do.

    An instance of an orchestration is shown with its story: what it received, sent and did, when and in which line, and
    what it waits for now. The story is read from its journal, which operators may not read.

    \b
    Examples:
      postroom instance show 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000
      postroom instance show 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000 --graph story.mmd
    """
    from postroom.operations.instances.details import OrchestrationInstanceDetails, get_instance_details
    from postroom.operations.orchestrations.story import Story
    from postroom.operations.short_ids import find_id

    with open_messagebox(options) as connection:
        found = get_instance_details(connection, find_id(connection, instance_id, "instance"))
    if graph is not None:
        write_graph(graph, found)
    if options.output is Format.JSON:
        show_record(found, options.output)
        return
    # The reason repeats the first line of the description. The story follows. Empty fields are left out.
    hidden = {"reason", "since", *Story.__dataclass_fields__}
    row = {**to_row(found), "service": found.display_name}
    show_record(
        {name: value for name, value in row.items() if value is not None and name not in hidden}, options.output
    )
    if isinstance(found, OrchestrationInstanceDetails):
        show_story(found)


for command in (resume, suspend, reroute, skip, terminate, save_rows, resume_rows, save_journal):
    instance.add_command(command)

add_list_command(
    instance,
    "postroom.operations.instances.changes:list_operations",
    "operation_id kind target requested_by requested_at total changed remaining pending finished_at",
    name="operations",
    help="List the operations on many instances with their progress, the latest first.\n\n"
    "The hosts continue an operation whose command was interrupted.",
    example="Example:\n  postroom instance operations",
    limit=20,
    empty="No operations.",
)
