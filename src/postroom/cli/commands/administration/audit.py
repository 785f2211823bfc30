"""`postroom audit`: list what operators have done."""

from __future__ import annotations

from datetime import datetime

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.options import CommandOptions, common_options, limit_option, pass_options
from postroom.cli.rendering.output import report_truncation, show_rows

_TIME = click.DateTime(["%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%dT%H:%M:%S"])


@click.group(cls=CommandGroup)
def audit() -> None:
    """List what operators have done, when and why.

    \b
    Example:
      postroom audit list --action port
    """


@audit.command("list")
@click.option("--action", metavar="ACTION", help="An action such as port.start, or port for all actions on ports.")
@click.option("--target", metavar="NAME", help="The port, location, application or instance that was changed.")
@click.option("--login", metavar="NAME", help="The login of the database, or the user of the command.")
@click.option("--since", type=_TIME, metavar="TIME", help="Only actions from this time on, in UTC: 2026-01-31T12:00.")
@click.option("--until", type=_TIME, metavar="TIME", help="Only actions before this time, in UTC.")
@limit_option(default=50)
@common_options
@pass_options
def list_(
    options: CommandOptions,
    action: str | None,
    target: str | None,
    login: str | None,
    since: datetime | None,
    until: datetime | None,
    limit: int,
) -> None:
    """List the actions, the latest first.

    \b
    Examples:
      postroom audit list --target Europe
      postroom audit list --action instance --since 2026-01-31 -o json
    """
    from datetime import UTC

    from postroom.operations.audit import list_audit

    with open_messagebox(options) as connection:
        found = list_audit(
            connection,
            action=action,
            target=target,
            login=login,
            since=None if since is None else since.replace(tzinfo=UTC),
            until=None if until is None else until.replace(tzinfo=UTC),
            limit=limit + 1,
        )
    columns = ["recorded_at", "login", "os_user", "action", "target", "before", "after", "reason"]
    show_rows(found[:limit], columns, options.output, empty="No actions.", optional=["os_user", "reason"])
    report_truncation(len(found), limit, options.output)
