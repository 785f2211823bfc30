"""`postroom audit`: list what operators have done."""

from __future__ import annotations

from datetime import UTC, datetime

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.list_commands import Decorator, add_list_command


@click.group(cls=CommandGroup)
def audit() -> None:
    """List what operators have done, when and why.

    \b
    Example:
      postroom audit list --action port
    """


def _to_utc(_context: click.Context, _parameter: click.Parameter, time: datetime | None) -> datetime | None:
    return None if time is None else time.replace(tzinfo=UTC)


def _time_option(name: str, help: str) -> Decorator:
    formats = ["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"]
    return click.option(name, type=click.DateTime(formats), metavar="TIME", callback=_to_utc, help=help)


add_list_command(
    audit,
    "postroom.operations.audit:list_audit",
    "recorded_at login os_user action target before after reason",
    help="List the actions, the latest first.",
    example="Examples:\n  postroom audit list --target Europe\n"
    "  postroom audit list --action instance --since 2026-01-31 -o json",
    options=[
        click.option(
            "--action", metavar="ACTION", help="An action such as port.start, or port for all actions on ports."
        ),
        click.option("--target", metavar="NAME", help="The port, location, application or instance that was changed."),
        click.option("--login", metavar="NAME", help="The login of the database, or the user of the command."),
        _time_option("--since", "Only actions from this time on, in UTC: 2026-01-31T12:00."),
        _time_option("--until", "Only actions before this time, in UTC."),
    ],
    limit=50,
    empty="No actions.",
    optional="os_user reason",
)
