"""`postroom plan`, `postroom apply` and `postroom application`."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.list_commands import add_list_command
from postroom.cli.options import (
    CommandOptions,
    allow_incompatible_option,
    backlog_option,
    change_options,
    common_options,
    confirm,
    to_backlog,
)
from postroom.cli.rendering.output import Format, show_rows
from postroom.operations.records import to_json

if TYPE_CHECKING:
    from postroom.application.definition import ApplicationDefinition
    from postroom.errors import Problem
    from postroom.operations.connection import Connection
    from postroom.operations.deployment.applications import Change
    from postroom.operations.deployment.backlog import Backlog
    from postroom.operations.deployment.plan import Difference, Plan, PlanStep

_APP = click.argument("app", type=click.Path(exists=True, dir_okay=False, path_type=Path))
_NO_WAIT = click.option("--no-wait", is_flag=True, help="Do not wait until running processes have taken the changes.")
_ALL = click.option("--all", "everything", is_flag=True, help="Also show what does not change.")


@click.command()
@_APP
@_ALL
@backlog_option
@allow_incompatible_option
@common_options
def plan(options: CommandOptions, app: Path, everything: bool, backlog: str | None, allow_incompatible: bool) -> None:
    """Show what applying an application would change. Changes nothing.

    All problems are listed together, with file and line. If there is no MessageBox yet, everything is new.

    If the code of an orchestration changes, the journals of its waiting instances are replayed, for up to ten seconds.
    Instances that cannot continue with the changed code are listed.

    \b
    Examples:
      postroom plan app.py --home ./orders-home
      postroom plan app.py --home ./orders-home --backlog reroute
    """
    from postroom.operations.deployment import apply as deployment

    definition = _load(options, app, to_backlog(backlog))
    if options.has_messagebox:
        with open_messagebox(options) as connection:
            planned = deployment.plan(
                connection,
                definition,
                home=options.home.absolute(),
                backlog=to_backlog(backlog),
                allow_incompatible=allow_incompatible,
            )
    else:
        planned = deployment.plan_first_deployment(definition, home=options.home.absolute())
    _show_plan(planned, options.output, everything=everything)
    planned.check()


@click.command()
@_APP
@_ALL
@backlog_option
@allow_incompatible_option
@_NO_WAIT
@change_options
def apply(
    options: CommandOptions,
    app: Path,
    everything: bool,
    backlog: str | None,
    allow_incompatible: bool,
    no_wait: bool,
) -> None:
    """Deploy an application: all of it or nothing.

    Existing ports keep their state, and locations stay enabled or disabled. The MessageBox is created if it does not
    exist, and upgraded if it has an older version.

    The command waits up to 30 seconds until the running hosts and pipelines of the application have taken the changes.
    What arrives afterwards is processed by the new definitions. If a process has not taken them, the command names it
    and ends with exit code 7. The changes are deployed then, too.

    A port, location or orchestration that still has instances is removed only with --backlog. If it is renamed, declare
    its old name with renamed_from. It then keeps its instances and its state.

    Changed code of an orchestration that waiting instances cannot continue with is applied only with
    --allow-incompatible. It suspends these instances.

    \b
    Examples:
      postroom apply app.py --home ./orders-home
      postroom apply app.py --home ./orders-home --backlog reroute
    """
    from postroom.operations.deployment import apply as deployment

    definition = _load(options, app, to_backlog(backlog))
    with open_messagebox(options, create=True) as connection:
        applied = deployment.apply(
            connection,
            definition,
            home=options.home.absolute(),
            backlog=to_backlog(backlog),
            allow_incompatible=allow_incompatible,
        )
        _finish(connection, applied, options.output, everything=everything, no_wait=no_wait)


@click.group(cls=CommandGroup)
def application() -> None:
    """Start, stop, list and remove applications.

    \b
    Example:
      postroom application list
    """


add_list_command(
    application,
    "postroom.operations.deployment.applications:list_applications",
    "name receive_ports locations send_ports send_port_groups orchestrations lookups applied_at",
    help="List the applications.",
    example="Example:\n  postroom application list -o json",
    empty="No applications. Apply one: postroom apply APP",
)


@application.command()
@click.argument("name")
@change_options
def start(options: CommandOptions, name: str) -> None:
    """Start all send ports, groups and orchestrations of an application, then enable its receive locations: all of it
    or nothing.

    Messages that were suspended because a port or an orchestration was stopped are resumed.

    \b
    Example:
      postroom application start orders
    """
    from postroom.operations.deployment import applications

    with open_messagebox(options) as connection:
        _show_changes(applications.start(connection, name), name, "started", options.output)


@application.command()
@click.argument("name")
@click.option("--receiving-only", is_flag=True, help="Disable the receive locations, and let the rest continue.")
@click.option(
    "--unenlist", is_flag=True, help="Also remove the subscriptions of ports and orchestrations. Instances stay."
)
@change_options
def stop(options: CommandOptions, name: str, receiving_only: bool, unenlist: bool) -> None:
    """Disable all receive locations of an application, then stop its orchestrations, groups and send ports: all of it
    or nothing.

    Messages that still arrive for the ports, or would activate an orchestration, are suspended. Instances of
    orchestrations continue, but what they send to stopped ports is suspended. Files stay in their folders.

    \b
    Examples:
      postroom application stop orders
      postroom application stop orders --receiving-only
    """
    from postroom.operations.deployment import applications

    if receiving_only and unenlist:
        raise click.UsageError("--receiving-only and --unenlist exclude each other.")
    with open_messagebox(options) as connection:
        changes = applications.stop(connection, name, receiving_only=receiving_only, unenlist=unenlist)
        _show_changes(changes, name, "stopped", options.output)


@application.command()
@click.argument("name")
@backlog_option
@click.option("--yes", is_flag=True, help="Skip the confirmation.")
@_NO_WAIT
@change_options
def remove(options: CommandOptions, name: str, backlog: str | None, yes: bool, no_wait: bool) -> None:
    """Remove an application with its ports, groups and locations: all of it or nothing.

    Shows what is removed and asks for confirmation first. Hosts and properties stay. An application that still has
    instances is removed only with --backlog.

    The command waits like 'postroom apply' until the running hosts and pipelines have taken the changes.

    \b
    Examples:
      postroom application remove orders
      postroom application remove orders --backlog terminate --yes
    """
    from postroom.operations.deployment import apply as deployment

    decision, home = to_backlog(backlog), options.home.absolute()
    with open_messagebox(options) as connection:
        planned = deployment.plan_removal(connection, name, home=home, backlog=decision)
        planned.check()
        is_shown = not yes and options.output is Format.TABLE
        if not yes:
            if is_shown:
                _show_plan(planned, options.output, verb="removed")
            confirm(f"Remove the application {name!r}?", refused=f"The application {name!r} was not removed.")
        removed = deployment.remove(connection, name, home=home, backlog=decision)
        _finish(connection, removed, options.output, are_steps_shown=is_shown, no_wait=no_wait)


def _show_changes(changes: Sequence[Change], name: str, state: str, output: Format) -> None:
    columns = ["kind", "name", "before", "after", "resumed"]
    rows = changes
    show_rows(rows, columns, output, empty=f"Nothing to change: {name} is {state} already.")


def _load(options: CommandOptions, app: Path, backlog: Backlog | None) -> ApplicationDefinition:
    """Return the application in the file. Raise DefinitionRefused with its problems and conflicts with the
    MessageBox."""
    from postroom.application.loading.load import read
    from postroom.errors import PostroomError
    from postroom.operations.deployment import apply as deployment

    loaded = read(app)
    if loaded.definition is not None and not loaded.problems:
        return loaded.definition
    conflicts: tuple[Problem, ...] = ()
    if loaded.definition is not None and options.has_messagebox:
        # If the MessageBox cannot be reached, the error is reported after the other problems are fixed.
        with suppress(PostroomError), open_messagebox(options) as connection:
            conflicts = deployment.find_deployment_problems(
                connection,
                loaded.definition,
                home=options.home.absolute(),
                other_names=loaded.other_names,
                backlog=backlog,
            )
    raise loaded.build_error(conflicts)


def _show_plan(plan: Plan, output: Format, *, everything: bool = False, verb: str = "applied") -> None:
    """Show what would change."""
    steps = _list_steps(plan, everything=everything)
    if output is Format.JSON:
        click.echo(to_json(_to_json(plan, steps, "would_change")))
        return
    _show_steps(steps)
    _show_summary(plan, f"{plan.application}, if {verb}")


def _finish(
    connection: Connection,
    plan: Plan,
    output: Format,
    *,
    everything: bool = False,
    are_steps_shown: bool = False,
    no_wait: bool,
) -> None:
    """Reroute or terminate the backlogs of what was removed, show what was changed, and wait until the running
    processes have taken it."""
    from postroom.operations.deployment.backlog import apply_backlog_decisions
    from postroom.operations.deployment.taken_changes import wait_until_taken

    results = apply_backlog_decisions(connection, plan.application)
    steps = _list_steps(plan, everything=everything)
    if output is Format.JSON:
        click.echo(to_json({**_to_json(plan, steps, "changed"), "backlog": results}))
    else:
        _show_steps([] if are_steps_shown else steps)
        for each in results:
            click.echo(str(each))
        _show_summary(plan, plan.application)
    if not no_wait:
        wait_until_taken(connection, plan.hosts)


def _list_steps(plan: Plan, *, everything: bool) -> list[PlanStep]:
    return [step for step in plan.steps if everything or step in plan.changes or step.note]


def _to_json(plan: Plan, steps: Sequence[PlanStep], changed: str) -> dict[str, Any]:
    """Return a plan for -o json. ``changed`` is the key that says whether anything changes."""
    return {
        "application": plan.application,
        changed: bool(plan.changes),
        "steps": steps,
        "problems": plan.problems,
        "incompatible_instances": plan.incompatible_instances,
        "notes": plan.notes,
    }


def _show_steps(steps: Sequence[PlanStep]) -> None:
    rows = [
        {
            "action": step.action.value,
            "kind": step.kind.value,
            "name": step.name,
            "what": "\n".join(
                [
                    *([step.note] if step.note else []),
                    *(_format_difference(step, difference) for difference in step.differences),
                ]
            ),
        }
        for step in steps
    ]
    if rows:
        show_rows(rows, ["action", "kind", "name", "what"], Format.TABLE)


def _format_difference(step: PlanStep, difference: Difference) -> str:
    before = "" if step.action == "create" else f"{difference.before} → "
    return f"{difference.field}: {before}{difference.after}"


def _show_summary(plan: Plan, subject: str) -> None:
    """Show the notes of a plan and the number of its changes."""
    for note in plan.notes:
        click.echo(note)
    if not plan.changes:
        click.echo(f"Nothing to change: {plan.application} is up to date.")
        return
    counts = [
        (sum(step.action == action for step in plan.steps), word)
        for action, word in (("create", "created"), ("change", "changed"), ("remove", "removed"), ("keep", "kept"))
    ]
    summary = ", ".join(f"{count} {word}" for count, word in counts if count)
    click.echo(f"{subject}: {summary}.")
