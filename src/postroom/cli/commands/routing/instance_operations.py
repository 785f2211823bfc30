"""Run operations on many instances from the command line, and list them (`postroom instance operations`)."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.connection import open_messagebox
from postroom.cli.options import CommandOptions, common_options, pass_options
from postroom.cli.rendering.output import report_truncation, show_rows

if TYPE_CHECKING:
    from postroom.messagebox.connection import Connection
    from postroom.operations.instances.bulk_operations import BulkOperation, OperationKind
    from postroom.operations.instances.listing import InstanceQuery

_PROGRESS_SECONDS = 1.0


@click.command()
@click.option(
    "--limit", type=click.IntRange(min=1), metavar="N", default=20, show_default=True, help="Maximum number of rows."
)
@common_options
@pass_options
def operations(options: CommandOptions, limit: int) -> None:
    """List the operations on many instances with their progress, the latest first.

    The hosts continue an operation whose command was interrupted.

    \b
    Example:
      postroom instance operations
    """
    from dataclasses import asdict

    from postroom.operations.instances.bulk_operations import list_operations

    with open_messagebox(options) as connection:
        found = list_operations(connection, limit=limit + 1)
    columns = [
        *("operation_id", "kind", "target", "requested_by", "requested_at", "total", "changed", "remaining", "pending"),
        "finished_at",
    ]
    rows = [asdict(operation) for operation in found[:limit]]
    show_rows(rows, columns, options.output, empty="No operations.")
    report_truncation(len(found), limit, options.output)


def run_and_report(
    connection: Connection, kind: OperationKind, query: InstanceQuery, conditions: Mapping[str, Any]
) -> BulkOperation:
    """Run an operation on all instances that match, and show its progress on a terminal. Return the operation."""
    from postroom.operations.instances.bulk_operations import run_operation, start_operation

    target = ", ".join(f"{name} {value}" for name, value in conditions.items() if value) or "all instances"
    operation_id = start_operation(connection, kind, query, target=target)
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
