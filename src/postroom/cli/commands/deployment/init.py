"""`postroom init`: create a new application folder."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from postroom.cli.options import CommandOptions, common_options
from postroom.cli.rendering.output import Format
from postroom.operations.records import to_json


@click.command()
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option(
    "--example",
    default="orders",
    show_default=True,
    metavar="NAME",
    help="Example to start from: orders, envelope, http, two_way, bulk, component, failures, procurement or lookup.",
)
@common_options
def init(options: CommandOptions, folder: Path, example: str) -> None:
    """Create a new application in a folder, ready to run.

    \b
    Examples:
      postroom init shop
      postroom init warehouse --example bulk
    """
    from postroom.example_applications import write_application

    options.refuse_database("This command only writes files.")
    written = write_application(folder, example)
    if options.output is Format.JSON:
        click.echo(to_json([{"file": path} for path in written]))
        return
    for path in written:
        click.echo(f"wrote {path}")
    click.echo(
        f"\nNext:  cd {shlex.quote(str(folder))}\n       postroom up app.py\n\nREADME.md describes how to try it."
    )
