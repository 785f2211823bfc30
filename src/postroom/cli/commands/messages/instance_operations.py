"""Resume, suspend, reroute, skip and terminate instances, and list the operations on many (`postroom instance`)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.commands.messages.instance_conditions import build_query, condition_options
from postroom.cli.connection import open_messagebox
from postroom.cli.options import ID, CommandOptions, change_options, confirm
from postroom.cli.rendering.output import Format
from postroom.operations.records import to_json

if TYPE_CHECKING:
    from postroom.message import Body
    from postroom.operations.connection import Connection
    from postroom.operations.instances.changes import BulkOperation, ChangedInstances, OperationKind
    from postroom.operations.instances.queries import InstanceQuery
    from postroom.operations.short_ids import ShortId

_PROGRESS_SECONDS = 1.0
_IDS = click.argument("ids", nargs=-1, type=ID, metavar="[ID]...")
_ALL = click.option("--all", "everything", is_flag=True, help="All instances that match the options below.")
_YES = click.option("--yes", is_flag=True, help="Skip the confirmation.")


def _operation_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the arguments of a command that changes some instances or all that match."""
    return _IDS(_ALL(condition_options(_YES(change_options(command)))))


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

    _operate(options, "resume", ids, everything, yes, conditions, body=content)


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
    _operate(options, "suspend", ids, everything, yes, conditions)


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
    _operate(options, "reroute", ids, everything, yes, conditions)


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
    _operate(options, "terminate", ids, everything, yes, conditions, all_messages=all_messages)


@click.command()
@click.argument("ids", nargs=-1, type=ID, metavar="ID...", required=True)
@change_options
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


def _operate(
    options: CommandOptions,
    kind: OperationKind,
    ids: tuple[ShortId, ...],
    everything: bool,
    yes: bool,
    conditions: Mapping[str, Any],
    *,
    all_messages: bool = False,
    body: Body | None = None,
) -> None:
    """Change the instances with the ids, or all that match the conditions, and show what was changed."""
    from postroom.operations.instances.changes import (
        change_all,
        change_instances,
        format_rerouted,
        get_done,
        resume_with_body,
    )

    if bool(ids) == everything:
        raise click.UsageError("Give either ids or --all.")
    if ids and any(conditions.values()):
        raise click.UsageError("Conditions need --all, not ids.")
    changed: ChangedInstances | BulkOperation
    with open_messagebox(options) as connection:
        query = _choose(connection, kind, ids, conditions)
        _confirm(connection, kind, query, asks=not yes, given=conditions, all_messages=all_messages)
        if query.ids is not None and body is not None:
            [instance_id] = query.ids
            changed = resume_with_body(connection, instance_id, body)
        elif query.ids is not None:
            changed = change_instances(connection, kind, [*query.ids], all_messages=all_messages)
        else:
            with _report_progress() as report:
                changed = change_all(
                    connection,
                    kind,
                    query,
                    all_messages=all_messages,
                    target=_describe_conditions(conditions),
                    report=report,
                )
    done, count, pending = get_done(kind), changed.changed, changed.pending
    if options.output is Format.JSON:
        shown = {done: count}
        if kind in ("suspend", "terminate"):
            shown["pending"] = pending
        if kind == "terminate":
            shown["messages"] = changed.messages
        click.echo(to_json(shown))
    elif kind == "reroute":
        click.echo(format_rerouted(changed.hosts))
    else:
        click.echo(f"{count} {'instance' if count == 1 else 'instances'} {done}.")
    if pending:
        noun = "instance is" if pending == 1 else "instances are"
        click.echo(
            f"{pending:,} {noun} active, and will be {done} after the current attempt, unless it succeeds.",
            err=True,
        )


def _choose(
    connection: Connection, kind: OperationKind, ids: tuple[ShortId, ...], conditions: Mapping[str, Any]
) -> InstanceQuery:
    """Return the query for the ids, or for the conditions."""
    from postroom.operations.instances.changes import restrict
    from postroom.operations.instances.queries import InstanceQuery
    from postroom.operations.short_ids import find_id

    if ids:
        return InstanceQuery(ids=[find_id(connection, given, "instance") for given in ids])
    return restrict(kind, build_query(connection, conditions))


def _confirm(
    connection: Connection,
    kind: OperationKind,
    query: InstanceQuery,
    *,
    asks: bool,
    given: Mapping[str, Any],
    all_messages: bool,
) -> None:
    """Show what a change would do. Ask for confirmation before all instances are changed, or several messages are
    terminated."""
    from postroom.operations.instances.changes import get_done
    from postroom.operations.instances.preview import format_counts, preview_change

    preview = preview_change(connection, kind, query, all_messages=all_messages)
    for warning in preview.warnings:
        click.echo(warning, err=True)
    question = "Continue?"
    if query.ids is None:
        messages = "" if preview.messages == sum(preview.instances.values()) else f", {preview.messages:,} messages,"
        click.echo(f"{format_counts(preview.instances)}{messages} will be {get_done(kind)}.", err=True)
        asks = asks and bool(preview.instances) and (kind == "terminate" or not any(given.values()))
    else:
        question = f"{preview.messages:,} messages will be terminated. {question}"
        asks = asks and kind == "terminate" and preview.messages > 1
    if asks:
        confirm(question, refused=f"No instance was {get_done(kind)}.")


def _describe_conditions(conditions: Mapping[str, Any]) -> str:
    given = {name: value for name, value in conditions.items() if value}
    return ", ".join(name if value is True else f"{name} {value}" for name, value in given.items()) or "all instances"


@contextmanager
def _report_progress() -> Iterator[Callable[[BulkOperation], None]]:
    """Yield a function that shows the progress of an operation on a terminal. Say who continues an interrupted one."""
    shown_at = time.monotonic()

    def report(progress: BulkOperation) -> None:
        nonlocal shown_at
        if time.monotonic() - shown_at >= _PROGRESS_SECONDS and sys.stderr.isatty():
            shown_at = time.monotonic()
            click.echo(f"{progress.total - progress.remaining:,} of {progress.total:,} instances", err=True)

    try:
        yield report
    except KeyboardInterrupt:
        click.echo("The hosts continue the operation: postroom instance operations", err=True)
        raise
