"""`postroom jobs` and `postroom check`: housekeeping and the consistency check."""

from __future__ import annotations

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.list_commands import add_list_command
from postroom.cli.options import CommandOptions, change_options
from postroom.cli.rendering.output import Format, show_rows
from postroom.operations.records import to_json


@click.group(cls=CommandGroup)
def jobs() -> None:
    """List and run the housekeeping jobs.

    Hosts run the jobs by themselves, one at a time.

    \b
    Example:
      postroom jobs list
    """


add_list_command(
    jobs,
    "postroom.operations.jobs:list_jobs",
    "name interval_seconds runs finished_at rows_last rows_total error",
    help="List the jobs, with the result of the last run of each.",
    example="Example:\n  postroom jobs list -o json",
)


@jobs.command()
@change_options
def run(options: CommandOptions) -> None:
    """Run all jobs once, now.

    \b
    Example:
      postroom jobs run
    """
    from postroom.errors import PostroomError
    from postroom.operations.jobs import run_jobs

    with open_messagebox(options) as connection:
        runs = run_jobs(connection)
    show_rows(runs, ["name", "rows", "error"], options.output)
    failed = [run for run in runs if run.error]
    if failed:
        raise PostroomError(
            f"{len(failed)} of {len(runs)} jobs failed.",
            why=f"{failed[0].name}: {failed[0].error}",
            hint="Run them again. If they still fail, run 'postroom check'.",
        )


@click.command()
@click.option("--repair", is_flag=True, help="Rebuild the reference counts from the queues, and delete unused rows.")
@change_options
def check(options: CommandOptions, repair: bool) -> None:
    """Verify the invariants of the MessageBox and list violations.

    The exit code is 1 if there are violations. With --repair, the MessageBox is repaired first, and the repairs are
    listed, too. Hosts and publishers wait during the repair. A message that is in a queue is never deleted.

    A warning is shown for each secret that ports and locations refer to and that is missing in the environment of this
    command.

    \b
    Example:
      postroom check --repair
    """
    from postroom.errors import PostroomError, format_count
    from postroom.operations.jobs import check as find_violations
    from postroom.operations.jobs import find_missing_secrets, repair_messagebox

    with open_messagebox(options) as connection:
        repairs = repair_messagebox(connection) if repair else []
        violations = find_violations(connection)
        missing_secrets = find_missing_secrets(connection)
    for missing in missing_secrets:
        click.echo(f"Warning: {missing}", err=True)
    rows = violations
    if repair and options.output is Format.JSON:
        click.echo(to_json({"repairs": repairs, "violations": rows}))
    else:
        if repair:
            columns = ["what", "problem", "count", "examples"]
            show_rows(repairs, columns, options.output, empty="There was nothing to repair.")
        columns = ["invariant", "count", "problem", "examples"]
        show_rows(rows, columns, options.output, empty="All invariants hold.")
    if violations:
        hints = dict.fromkeys(violation.hint for violation in violations)
        raise PostroomError(
            f"The check found {format_count(len(violations), 'violated invariant')}.",
            why="; ".join(violation.invariant for violation in violations),
            hint="\n".join(hints),
        )
