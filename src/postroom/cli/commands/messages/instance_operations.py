"""Resume, suspend, reroute, skip and terminate instances, and list the operations on many (`postroom instance`)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.commands.messages.instance_conditions import build_query, condition_options
from postroom.cli.connection import open_messagebox
from postroom.cli.options import ID, CommandOptions, common_options, confirm, pass_options, reason_option
from postroom.cli.rendering.output import Format
from postroom.operations.records import to_json

if TYPE_CHECKING:
    from postroom.message import Body
    from postroom.messagebox.connection import Connection
    from postroom.messagebox.instance_operations import BulkOperation, OperationKind
    from postroom.messagebox.instances import InstanceQuery
    from postroom.operations.short_ids import ShortId

_PROGRESS_SECONDS = 1.0
_IDS = click.argument("ids", nargs=-1, type=ID, metavar="[ID]...")
_ALL = click.option("--all", "everything", is_flag=True, help="All instances that match the options below.")
_YES = click.option("--yes", is_flag=True, help="Skip the confirmation.")


def _operation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments of a command that changes some instances or all that match."""
    return _IDS(_ALL(condition_options(_YES(reason_option(common_options(pass_options(command)))))))


@click.command()
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
    from postroom.cli.options import open_body

    if body is not None and len(ids) != 1:
        raise click.UsageError("--body needs exactly one id.")
    content = None if body is None else open_body(body)
    if content is not None and not content.size and not allow_empty:
        raise click.UsageError(f"{body} is empty. Add --allow-empty to replace the body with an empty file.")

    operation = Operation(
        kind="resume",
        asks=not yes and not any(conditions.values()),
        warn=_warn_about_removed_services,
        body=content,
    )
    _operate(options, ids, everything, conditions, operation)


@click.command()
@_operation_options
def suspend(
    options: CommandOptions, /, ids: tuple[ShortId, ...], everything: bool, yes: bool, **conditions: Any
) -> None:
    """Suspend instances that are ready to run or wait for a retry or a service window, until they are resumed.

    \b
    Example:
      postroom instance suspend --all --port Europe
    """
    operation = Operation(kind="suspend", asks=not yes and not any(conditions.values()))
    _operate(options, ids, everything, conditions, operation)


@click.command()
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
      postroom instance reroute --all --port Europe --removed
    """
    operation = Operation(kind="reroute", asks=not yes and not any(conditions.values()))
    _operate(options, ids, everything, conditions, operation)


@click.command()
@click.option("--all-messages", is_flag=True, help="All messages of an ordered send port, not only its first one.")
@_operation_options
def terminate(
    options: CommandOptions,
    /,
    ids: tuple[ShortId, ...],
    all_messages: bool,
    everything: bool,
    yes: bool,
    **conditions: Any,
) -> None:
    """Delete instances. Their messages are deleted too, unless other instances refer to them.

    An ordered send port is one instance. Only its first message is deleted, and the messages after it stay.

    The number is shown first, and the command asks for confirmation, unless it deletes one message only.

    \b
    Examples:
      postroom instance terminate 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000
      postroom instance terminate 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000 --all-messages
      postroom instance terminate --all --state not-resumable --yes
      postroom instance terminate --all --state suspended --interchange 767d8066-85c8-cc9d-2b7e-f0560eed4a98
    """
    operation = Operation(
        kind="terminate",
        asks=not yes,
        warn=partial(_count_messages, all_messages=all_messages),
        confirm_ids=partial(_confirm_terminate, all_messages=all_messages, yes=yes),
        all_messages=all_messages,
    )
    _operate(options, ids, everything, conditions, operation)


@click.command()
@click.argument("ids", nargs=-1, type=ID, metavar="ID...", required=True)
@reason_option
@common_options
@pass_options
def skip(options: CommandOptions, ids: tuple[ShortId, ...]) -> None:
    """Move the first message of an ordered send port aside, so that the messages after it are sent.

    The message stays suspended as an instance of its own, and can be resumed or terminated later. If it is resumed, it
    arrives after messages that were published later.

    \b
    Example:
      postroom instance skip 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000
    """
    from postroom.operations.all_or_none import all_or_none
    from postroom.operations.instances import changes as instance_changes
    from postroom.operations.short_ids import find_id

    with open_messagebox(options) as connection:
        found = [find_id(connection, given, "instance") for given in ids]
        skipped = all_or_none(connection, found, instance_changes.skip)
    if options.output is Format.JSON:
        click.echo(to_json({"skipped": len(skipped), "instances": skipped}))
        return
    for instance_id in skipped:
        click.echo(f"The message is now instance {instance_id}, which is suspended.")


def _run_and_report(
    connection: Connection, operation: Operation, query: InstanceQuery, conditions: Mapping[str, Any]
) -> BulkOperation:
    """Run an operation on all instances that match, and show its progress on a terminal. Return the operation."""
    from postroom.messagebox.instance_operations import run_operation, start_operation

    given = {name: value for name, value in conditions.items() if value}
    target = ", ".join(name if value is True else f"{name} {value}" for name, value in given.items()) or "all instances"
    operation_id = start_operation(
        connection, operation.kind, query, target=target, first_only=not operation.all_messages
    )
    shown_at = time.monotonic()

    def report(progress: BulkOperation) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= _PROGRESS_SECONDS and sys.stderr.isatty():
            shown_at = time.monotonic()
            click.echo(f"{progress.total - progress.remaining:,} of {progress.total:,} instances", err=True)

    try:
        return run_operation(connection, operation_id, report=report)
    except KeyboardInterrupt:
        click.echo(f"The hosts continue operation {operation_id}: postroom instance operations", err=True)
        raise


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A change of one instance or of all that match a query."""

    kind: OperationKind
    asks: bool
    """True if --all asks for confirmation."""
    warn: Callable[[Connection, InstanceQuery], None] = lambda _connection, _query: None
    """Warns of consequences before the change."""
    confirm_ids: Callable[[Connection, InstanceQuery], None] = lambda _connection, _query: None
    """Asks for confirmation before the instances with the given ids are changed."""
    all_messages: bool = False
    """True if all messages of an ordered send port are terminated, not only the first."""
    body: Body | None = None
    """The new body of the message, for a single instance."""


def _operate(
    options: CommandOptions,
    ids: tuple[ShortId, ...],
    everything: bool,
    conditions: dict[str, Any],
    operation: Operation,
) -> None:
    from postroom.messagebox.instances import InstanceQuery
    from postroom.operations.instances.changes import (
        ChangedInstances,
        change_instances,
        format_rerouted,
        get_done,
        restrict,
    )
    from postroom.operations.instances.changes import resume as resume_one
    from postroom.operations.instances.query_names import check_names
    from postroom.operations.short_ids import find_id

    if bool(ids) == everything:
        raise click.UsageError("Give either ids or --all.")
    if ids and any(conditions.values()):
        raise click.UsageError("Conditions need --all, not ids.")
    changed: ChangedInstances | BulkOperation
    with open_messagebox(options) as connection:
        if everything:
            query = build_query(connection, conditions)
            check_names(connection, query)
            query = restrict(operation.kind, query)
            operation.warn(connection, query)
            _announce(connection, query, operation)
            changed = _run_and_report(connection, operation, query, conditions)
        else:
            found = [find_id(connection, given, "instance") for given in ids]
            operation.warn(connection, InstanceQuery(ids=found))
            operation.confirm_ids(connection, InstanceQuery(ids=found))
            if operation.body is not None:
                resume_one(connection, found[0], body=operation.body)
                changed = ChangedInstances(changed=1)
            else:
                changed = change_instances(connection, operation.kind, found, all_messages=operation.all_messages)
    done, count, pending = get_done(operation.kind), changed.changed, changed.pending
    if options.output is Format.JSON:
        can_be_pending = operation.kind in ("suspend", "terminate")
        click.echo(to_json({done: count, **({"pending": pending} if can_be_pending else {})}))
    elif operation.kind == "reroute":
        click.echo(format_rerouted(changed.hosts))
    else:
        click.echo(f"{count} {'instance' if count == 1 else 'instances'} {done}.")
    if pending:
        noun = "instance is" if pending == 1 else "instances are"
        click.echo(
            f"{pending:,} {noun} active, and will be {done} after the current attempt, unless it succeeds.",
            err=True,
        )


def _announce(connection: Connection, query: InstanceQuery, operation: Operation) -> None:
    """Show how many instances an operation changes, and ask for confirmation if it asks."""
    from postroom.messagebox.instances import count_states
    from postroom.operations.instances.changes import get_done
    from postroom.operations.instances.query_names import format_counts

    counts = count_states(connection, query)
    click.echo(f"{format_counts(counts)} will be {get_done(operation.kind)}.", err=True)
    if operation.asks and counts:
        confirm("Continue?", refused=f"No instance was {get_done(operation.kind)}.")


def _count_messages(connection: Connection, query: InstanceQuery, *, all_messages: bool) -> None:
    """Show how many messages of ordered send ports a termination deletes, and how many stay."""
    from postroom.errors import format_count
    from postroom.messagebox.instances import list_instances
    from postroom.messagebox.storage.copy_rows import QueueTask

    for port in list_instances(connection, replace(query, tasks=[QueueTask.DELIVER_IN_ORDER])):
        if all_messages:
            click.echo(
                f"All {format_count(port.messages, 'message')} of {port.display_name} will be deleted.", err=True
            )
        elif port.messages > 1:
            click.echo(
                f"Only the first message of {port.display_name} will be deleted."
                f" {format_count(port.messages - 1, 'message').capitalize()} after it will be sent."
                " To delete them too, add --all-messages.",
                err=True,
            )


def _confirm_terminate(connection: Connection, query: InstanceQuery, *, all_messages: bool, yes: bool) -> None:
    """Ask for confirmation if more than one message is deleted."""
    from postroom.messagebox.instances import list_instances
    from postroom.messagebox.storage.copy_rows import QueueTask

    found = list_instances(connection, query)
    count = sum(1 if one.task is QueueTask.DELIVER_IN_ORDER and not all_messages else one.messages for one in found)
    if count > 1 and not yes:
        confirm(f"{count:,} messages will be terminated. Continue?", refused="No instance was terminated.")


def _warn_about_removed_services(connection: Connection, query: InstanceQuery) -> None:
    from postroom.operations.instances.advice import describe_removed_services

    for warning in describe_removed_services(connection, query):
        click.echo(warning, err=True)
