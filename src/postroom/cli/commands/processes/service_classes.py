"""`postroom service-class`: how hosts dequeue."""

from __future__ import annotations

from datetime import timedelta

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.list_commands import add_list_command
from postroom.cli.options import CommandOptions, change_options
from postroom.cli.rendering.output import show_rows

_COLUMNS = ["name", "polling_interval_seconds", "dequeue_threads"]


@click.group("service-class", cls=CommandGroup)
def service_class() -> None:
    """Show and change how all hosts dequeue.

    \b
    Example:
      postroom service-class set messaging_in_process --threads 10
    """


add_list_command(
    service_class,
    "postroom.operations.hosts:list_service_classes",
    " ".join(_COLUMNS),
    help="List the service classes with their settings.",
    example="Example:\n  postroom service-class list -o json",
)


@service_class.command("set")
@click.argument("name")
@click.option("--polling-interval", type=float, metavar="SECONDS", help="How often a host looks into an empty queue.")
@click.option("--threads", type=int, metavar="COUNT", help="The number of dequeue threads of each host instance.")
@change_options
def set_(
    options: CommandOptions,
    name: str,
    polling_interval: float | None,
    threads: int | None,
) -> None:
    """Change the settings of a service class. Running hosts take the change within a second.

    \b
    Examples:
      postroom service-class set messaging_in_process --threads 10
      postroom service-class set messaging_in_process --polling-interval 0.1
    """
    from postroom.operations.hosts import set_service_class

    if polling_interval is None and threads is None:
        raise click.UsageError("Give --polling-interval or --threads.")
    interval = None if polling_interval is None else timedelta(seconds=polling_interval)
    with open_messagebox(options) as connection:
        changed = set_service_class(connection, name, polling_interval=interval, dequeue_threads=threads)
    show_rows([changed], _COLUMNS, options.output)
