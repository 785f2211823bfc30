"""`postroom database`: run the embedded PostgreSQL alone."""

from __future__ import annotations

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import describe_stopped_server
from postroom.cli.options import CommandOptions, common_options
from postroom.cli.rendering.output import Format
from postroom.operations.records import to_json


@click.group(cls=CommandGroup)
def database() -> None:
    """Run the embedded PostgreSQL of a home folder alone.

    \b
    Example:
      postroom database run --home ./orders-home
    """


@database.command()
@common_options
def run(options: CommandOptions) -> None:
    """Run PostgreSQL until Ctrl-C, and print its URL when it accepts connections.

    A MessageBox is created if the home folder has none. Programs on this machine and psql can connect to the URL.

    \b
    Example:
      postroom database run --home ./orders-home
    """
    import threading

    from postroom.operations.connection import migrate
    from postroom.processes.stop_signals import set_on_stop_signals

    if options.database:
        raise click.UsageError(f"This command runs the embedded PostgreSQL. Leave out {options.database_from}.")
    stopping = threading.Event()
    with set_on_stop_signals(stopping), options.messagebox(create=True) as url:
        migrate(url)
        click.echo(to_json({"url": url}) if options.output is Format.JSON else url)
        click.echo("PostgreSQL is running. Press Ctrl-C to stop.", err=True)
        stopping.wait()
    click.echo(describe_stopped_server(options), err=True)
