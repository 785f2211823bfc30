"""`postroom handler`: the adapters that hosts run."""

from __future__ import annotations

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.list_commands import add_list_command


@click.group(cls=CommandGroup)
def handler() -> None:
    """List the adapters that hosts run.

    An application declares them with app.host(NAME, handlers=[...]). Other hosts run every adapter that their type
    allows.

    \b
    Example:
      postroom handler list --host Main
    """


add_list_command(
    handler,
    "postroom.operations.hosts:list_handlers",
    "host adapter direction declared used_by high_watermark low_watermark",
    help="List the handlers: which host receives or sends with which adapter, and how many locations or ports use it.",
    example="Example:\n  postroom handler list --host Main",
    options=[click.option("--host", "host_name", metavar="NAME", help="Only the handlers of this host.")],
    empty="No hosts. Apply an application: postroom apply APP",
)
