"""`postroom instance`: list, resume, suspend, reroute and terminate service instances."""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.commands.routing.bad_rows import resume_rows, save_rows
from postroom.cli.commands.routing.instance_conditions import build_query, condition_options
from postroom.cli.commands.routing.instance_operations import operations, run_and_report
from postroom.cli.commands.routing.journals import save_journal
from postroom.cli.confirmation import confirm
from postroom.cli.connection import open_messagebox
from postroom.cli.options import ID, CommandOptions, common_options, pass_options, reason_option
from postroom.cli.rendering.instance_rows import to_instance_row
from postroom.cli.rendering.output import Format, report_truncation, show_record, show_rows, to_json
from postroom.cli.rendering.story import show_story, to_story_json, write_graph

if TYPE_CHECKING:
    from postroom.messagebox.connection import Connection
    from postroom.operations.instances.bulk_operations import OperationKind
    from postroom.operations.instances.listing import GroupBy, InstanceQuery
    from postroom.operations.short_ids import ShortId

_IDS = click.argument("ids", nargs=-1, type=ID, metavar="[ID]...")
_ALL = click.option("--all", "everything", is_flag=True, help="All instances that match the options below.")
_YES = click.option("--yes", is_flag=True, help="Skip the confirmation.")


def _operation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments of a command that changes some instances or all that match."""
    return _IDS(_ALL(condition_options(_YES(reason_option(common_options(pass_options(command)))))))


@click.group(cls=CommandGroup)
def instance() -> None:
    """List, resume, suspend, reroute and terminate service instances.

    An instance is a message on its way to one subscriber, or a received message that could not be published. An
    instance of a convoy, or one with its own subscription, can have several messages.

    \b
    Example:
      postroom instance list --state suspended
    """


@instance.command("list")
@condition_options
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", default=50, show_default=True, help="Maximum number of rows."
)
@click.option(
    "--group-by",
    type=click.Choice(["host", "port", "error", "reason", "adapter", "uri"]),
    help="Count the instances by this column instead of listing them.",
)
@common_options
@pass_options
def list_(options: CommandOptions, /, limit: int, group_by: GroupBy | None, **conditions: Any) -> None:
    """List the instances, the latest first, or count them by a column.

    \b
    Examples:
      postroom instance list --state suspended --port Europe
      postroom instance list --group-by reason
    """
    from postroom.operations.instances.listing import check_names, count_instances, list_instances

    with open_messagebox(options) as connection:
        check_names(connection, build_query(connection, conditions))
        if group_by is not None:
            counts = [
                {
                    group_by: count.value,
                    "state": count.state_label,
                    "count": count.count,
                    "oldest": count.oldest,
                    "newest": count.newest,
                }
                for count in count_instances(connection, build_query(connection, conditions), group_by)
            ]
            columns = [group_by, "state", "count", "oldest", "newest"]
            show_rows(counts, columns, options.output, empty="No instances.")
            return
        found = list_instances(connection, build_query(connection, conditions, limit=limit + 1))
    columns = ["instance_id", "state", "service", "host", "attempt", "since", "error_code", "reason"]
    if any(instance.retry_at is not None for instance in found):
        columns.insert(5, "retry_at")
    if any(instance.timer_at is not None for instance in found):
        columns.insert(5, "timer_at")
    if any(instance.messages > 1 for instance in found):
        columns.insert(4, "messages")
    show_rows(
        [to_instance_row(instance, options.output) for instance in found[:limit]],
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
    help="Draw the story of an orchestration instance into this file, as SVG.",
)
@common_options
@pass_options
def show(options: CommandOptions, instance_id: ShortId, graph: Path | None) -> None:
    """Show an instance, why it is suspended, and what to do.

    An instance of an orchestration is shown with its story: what it received, sent and did, when and in which line, and
    what it waits for now. The story is read from its journal, which operators may not read.

    \b
    Examples:
      postroom instance show 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000
      postroom instance show 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000 --graph story.svg
    """
    from postroom.operations.instances.advice import get_advice
    from postroom.operations.instances.listing import get_instance
    from postroom.operations.orchestrations.story import read_story
    from postroom.operations.short_ids import find_id

    with open_messagebox(options) as connection:
        found = get_instance(connection, find_id(connection, instance_id, "instance"))
        story = read_story(connection, found.instance_id)
    if graph is not None:
        write_graph(graph, found, story)
    row = {**to_instance_row(found, options.output), "what_to_do": get_advice(found)}
    if options.output is Format.TABLE:
        # The reason repeats the first line of the description. Empty fields are left out.
        row = {name: value for name, value in row.items() if value is not None and name not in ("reason", "since")}
    if story is not None and options.output is Format.JSON:
        row |= to_story_json(story)
    show_record(row, options.output)
    if story is not None and options.output is Format.TABLE:
        show_story(story)


@instance.command()
@click.option(
    "--body",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Replace the body of the message with this file. Needs exactly one instance.",
)
@click.option("--allow-empty", is_flag=True, help="Accept an empty file as the body.")
@_operation_options
def resume(
    options: CommandOptions,
    /,
    ids: tuple[ShortId, ...],
    body: Path | None,
    allow_empty: bool,
    everything: bool,
    yes: bool,
    **conditions: Any,
) -> None:
    """Resume suspended instances, even if their port is stopped.

    A message that cannot be read fails again unless its content or its pipeline was corrected. Save its body, correct
    it, and resume the instance with --body. The original is then deleted, unless another instance refers to it.

    \b
    Examples:
      postroom instance resume 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000
      postroom instance resume 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000 --body fixed.json
      postroom instance resume --all --port Europe --error DELIVERY
    """
    from postroom.cli.input_files import open_body
    from postroom.operations.instances import changes as instance_changes

    if body is not None and len(ids) != 1:
        raise click.UsageError("--body needs exactly one id.")
    content = None if body is None else open_body(body)
    if content is not None and not content.size and not allow_empty:
        raise click.UsageError(f"{body} is empty. Add --allow-empty to replace the body with an empty file.")

    def one(connection: Connection, instance_id: uuid.UUID) -> None:
        instance_changes.resume(connection, instance_id, body=content)

    operation = Operation(
        done="resumed",
        one=one,
        kind="resume",
        restrict=instance_changes.restrict_to_resumable,
        asks=not yes and not any(conditions.values()),
        warn=_warn_about_removed_services,
    )
    _operate(options, ids, everything, conditions, operation)


@instance.command()
@_operation_options
def suspend(
    options: CommandOptions, /, ids: tuple[ShortId, ...], everything: bool, yes: bool, **conditions: Any
) -> None:
    """Suspend instances that are ready to run or wait for a retry or a service window, until they are resumed.

    \b
    Example:
      postroom instance suspend --all --port Europe
    """
    from postroom.operations.instances import changes as instance_changes

    operation = Operation(
        done="suspended",
        one=instance_changes.suspend,
        kind="suspend",
        can_be_pending=True,
        restrict=instance_changes.restrict_to_suspendable,
        asks=not yes and not any(conditions.values()),
    )
    _operate(options, ids, everything, conditions, operation)


@instance.command()
@_operation_options
def reroute(
    options: CommandOptions, /, ids: tuple[ShortId, ...], everything: bool, yes: bool, **conditions: Any
) -> None:
    """Publish the messages of suspended instances again, by the current subscriptions.

    Use it for the messages of a port that was removed or whose filter changed. A message goes to the subscribers that
    did not get it when it was published: ports that were enlisted or got another filter since, and its own port. If
    there is none, the instance is suspended again. A host publishes the messages.

    \b
    Examples:
      postroom instance reroute 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000
      postroom instance reroute --all --port Europe
    """
    from postroom.operations.instances import changes as instance_changes

    operation = Operation(
        done="rerouted",
        one=instance_changes.reroute,
        kind="reroute",
        restrict=instance_changes.restrict_to_reroutable,
        asks=not yes and not any(conditions.values()),
    )
    _operate(options, ids, everything, conditions, operation)


@instance.command()
@_operation_options
def terminate(
    options: CommandOptions, /, ids: tuple[ShortId, ...], everything: bool, yes: bool, **conditions: Any
) -> None:
    """Delete instances. Their messages are deleted too, unless other instances refer to them.

    With --all the number of instances is shown first, and the command asks for confirmation.

    \b
    Examples:
      postroom instance terminate 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000
      postroom instance terminate --all --state not-resumable --yes
      postroom instance terminate --all --state suspended --interchange 767d8066-85c8-cc9d-2b7e-f0560eed4a98
    """
    from postroom.operations.instances import changes as instance_changes

    operation = Operation(
        done="terminated",
        one=instance_changes.terminate,
        kind="terminate",
        can_be_pending=True,
        restrict=instance_changes.restrict_to_terminable,
        asks=not yes,
    )
    _operate(options, ids, everything, conditions, operation)


instance.add_command(save_rows)
instance.add_command(save_journal)
instance.add_command(resume_rows)
instance.add_command(operations)


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A change of one instance or of all that match a query."""

    kind: OperationKind
    done: str
    one: Callable[[Connection, uuid.UUID], str | bool | None]
    """Returns the name of the host that continues the change, or False if the instance is changed later."""
    restrict: Callable[[InstanceQuery], InstanceQuery]
    """Returns the query for the instances that --all changes."""
    asks: bool
    """True if --all asks for confirmation."""
    can_be_pending: bool = False
    """True if active instances are changed later."""
    warn: Callable[[Connection, InstanceQuery], None] = lambda _connection, _query: None
    """Warns of consequences before the change."""


def _operate(
    options: CommandOptions,
    ids: tuple[ShortId, ...],
    everything: bool,
    conditions: dict[str, Any],
    operation: Operation,
) -> None:
    from postroom.operations.all_or_none import all_or_none
    from postroom.operations.instances.changes import format_rerouted
    from postroom.operations.instances.listing import InstanceQuery, check_names
    from postroom.operations.short_ids import find_id

    if bool(ids) == everything:
        raise click.UsageError("Give either ids or --all.")
    if ids and any(conditions.values()):
        raise click.UsageError("Conditions need --all, not ids.")
    changed: int | Counter[str]
    with open_messagebox(options) as connection:
        if everything:
            query = build_query(connection, conditions)
            check_names(connection, query)
            _announce(connection, query, operation)
            operation.warn(connection, operation.restrict(query))
            finished = run_and_report(connection, operation.kind, operation.restrict(query), conditions)
            changed = Counter(finished.hosts) if operation.kind == "reroute" else finished.changed
            pending = finished.pending
        else:
            found = [find_id(connection, given, "instance") for given in ids]
            operation.warn(connection, InstanceQuery(ids=found))
            results = all_or_none(connection, found, operation.one)
            pending = results.count(False)
            hosts = Counter(result for result in results if isinstance(result, str))
            changed = hosts or len(results) - pending
    count = changed if isinstance(changed, int) else changed.total()
    if options.output is Format.JSON:
        click.echo(to_json({operation.done: count, **({"pending": pending} if operation.can_be_pending else {})}))
    elif isinstance(changed, Counter):
        click.echo(format_rerouted(changed))
    else:
        click.echo(f"{count} {'instance' if count == 1 else 'instances'} {operation.done}.")
    if pending:
        noun = "instance is" if pending == 1 else "instances are"
        click.echo(
            f"{pending:,} {noun} active, and will be {operation.done} after the current attempt, unless it succeeds.",
            err=True,
        )


def _announce(connection: Connection, query: InstanceQuery, operation: Operation) -> None:
    """Show how many instances an operation changes, and ask for confirmation if it asks."""
    from postroom.operations.instances.listing import count_states, format_counts

    counts = count_states(connection, operation.restrict(query))
    click.echo(f"{format_counts(counts)} will be {operation.done}.", err=True)
    if operation.asks and counts:
        confirm("Continue?", refused=f"No instance was {operation.done}.")


def _warn_about_removed_services(connection: Connection, query: InstanceQuery) -> None:
    from postroom.operations.instances.removed_services import describe_removed_services

    for warning in describe_removed_services(connection, query):
        click.echo(warning, err=True)
