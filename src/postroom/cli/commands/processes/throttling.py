"""`postroom throttling`: how hosts are throttled, and overrides."""

from __future__ import annotations

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.list_commands import add_list_command
from postroom.cli.options import CommandOptions, change_options
from postroom.cli.rendering.output import show_record

_MODES = click.Choice(["auto", "always", "never"])


@click.group(cls=CommandGroup)
def throttling() -> None:
    """Show and override the throttling of hosts.

    \b
    Example:
      postroom throttling set Main --publishing never --reason "month-end load"
    """


add_list_command(
    throttling,
    "postroom.operations.throttling:list_throttling",
    "host direction process state description delay override reason",
    help="List the hosts with their throttling states, delays, reasons and overrides.\n\n"
    "A row without a process is what programs and receive locations see that publish for the host. The other rows are "
    "those of its running processes.",
    example="Example:\n  postroom throttling list -o json",
    empty="No hosts. Apply an application: postroom apply APP",
)


@throttling.command("set")
@click.argument("host")
@click.option("--publishing", type=_MODES, help="Override the throttling of what publishes for the host.")
@click.option("--delivery", type=_MODES, help="Override the throttling of what the host delivers.")
@click.option(
    "--severity",
    type=click.IntRange(1, 1000),
    default=100,
    show_default=True,
    help="How much 'always' throttles: the delay in thousandths of the longest delay.",
)
@change_options
def set_(options: CommandOptions, host: str, publishing: str | None, delivery: str | None, severity: int) -> None:
    """Throttle a host always or never, or again automatically. Running processes take the change within a second.

    \b
    Examples:
      postroom throttling set Main --publishing never
      postroom throttling set Main --delivery always --severity 300
      postroom throttling set Main --publishing auto --delivery auto
    """
    from postroom.operations.throttling import set_override
    from postroom.throttling import OverrideMode

    if publishing is None and delivery is None:
        raise click.UsageError("Give --publishing or --delivery.")
    with open_messagebox(options) as connection:
        changed = set_override(
            connection,
            host,
            publishing=None if publishing is None else OverrideMode(publishing),
            delivery=None if delivery is None else OverrideMode(delivery),
            severity=severity,
        )
    show_record(
        {"host": host, "publishing": str(changed.publishing), "delivery": str(changed.delivery)}, options.output
    )
