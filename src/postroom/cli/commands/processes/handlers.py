"""`postroom handler`: the adapters that hosts run."""

from __future__ import annotations

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.options import CommandOptions, common_options, pass_options
from postroom.cli.rendering.output import show_rows


@click.group(cls=CommandGroup)
def handler() -> None:
    """List the adapters that hosts run.

    An application declares them with app.host(NAME, handlers=[...]). Other hosts run every adapter that their type
    allows.

    \b
    Example:
      postroom handler list --host Main
    """


@handler.command("list")
@click.option("--host", metavar="NAME", help="Only the handlers of this host.")
@common_options
@pass_options
def list_(options: CommandOptions, host: str | None) -> None:
    """List the handlers: which host receives or sends with which adapter, and how many locations or ports use it.

    \b
    Example:
      postroom handler list --host Main
    """
    from postroom.operations.hosts import list_handlers

    with open_messagebox(options) as connection:
        rows = list_handlers(connection, host)
    columns = ["host", "adapter", "direction", "declared", "used_by", "high_watermark", "low_watermark"]
    show_rows(rows, columns, options.output, empty="No hosts. Apply an application: postroom apply APP")
