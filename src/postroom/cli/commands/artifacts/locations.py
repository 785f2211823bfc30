"""`postroom location`: list, enable, disable and schedule receive locations."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.options import CommandOptions, change_options, common_options, names_argument
from postroom.cli.rendering.output import show_paragraphs, show_rows
from postroom.errors import DefinitionError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from postroom.application import Schedule
    from postroom.operations.connection import Connection

_SCHEDULE_COLUMNS = ["location", "schedule"]


@click.group(cls=CommandGroup)
def location() -> None:
    """List, enable, disable and schedule receive locations.

    \b
    Example:
      postroom location disable drop
    """


@location.command("list")
@common_options
def list_(options: CommandOptions) -> None:
    """List the receive locations, with the number of files and requests that they have not published yet.

    \b
    Example:
      postroom location list -o json
    """
    from postroom.operations.ports.receive_locations import list_locations

    with open_messagebox(options) as connection:
        listed = list_locations(connection)
    columns = ["location", "port", "application", "host", "enabled", "schedule", "opens"]
    columns += ["waiting", "suspended", "pipeline", "uri"]
    show_rows(
        listed,
        columns,
        options.output,
        empty="No receive locations. Apply an application: postroom apply APP",
        optional=["pipeline", "application", "opens", "schedule", "host", "port"],
    )
    show_paragraphs(
        [(location.location, problem) for location in listed for problem in location.problems], options.output
    )


@location.command()
@names_argument
@change_options
def enable(options: CommandOptions, names: tuple[str, ...]) -> None:
    """Enable locations.

    \b
    Example:
      postroom location enable drop
    """
    from postroom.operations.ports import receive_locations

    _change(options, names, receive_locations.enable, "enabled")


@location.command()
@names_argument
@change_options
def disable(options: CommandOptions, names: tuple[str, ...]) -> None:
    """Disable locations. What they have already received is still published.

    \b
    Example:
      postroom location disable drop
    """
    from postroom.operations.ports import receive_locations

    _change(options, names, receive_locations.disable, "disabled")


@location.command("reset-stream")
@names_argument
@change_options
def reset_stream(options: CommandOptions, names: tuple[str, ...]) -> None:
    """Restart row streams, such as Kafka topics, from their options after their checkpoint was lost.

    Rows may be published again or be missing. The rest of the old checkpoint is kept.

    \b
    Example:
      postroom location reset-stream orders-topic
    """
    from postroom.operations.ports import receive_locations

    _change(options, names, receive_locations.reset_stream, "reset")


@location.command()
@names_argument
@click.option(
    "--window", metavar="HH:MM-HH:MM", help="Time of day. A window that ends before it starts spans midnight."
)
@click.option("--zone", metavar="ZONE", default="UTC", show_default=True, help="Time zone of the days and times.")
@click.option("--from", "start", metavar="DAY", help="First day, such as 2026-01-31.")
@click.option("--until", "stop", metavar="DAY", help="Last day.")
@click.option("--every-days", type=int, metavar="N", help="Every N days, counted from the first day.")
@click.option("--weekdays", metavar="DAYS", help="Days of the week, such as mon,wed,fri.")
@click.option("--month-days", metavar="DAYS", help="Days of the month, such as 1,15,last.")
@click.option("--month-weekdays", metavar="DAYS", help="Weekdays of the month, such as 'first mon,last fri'.")
@click.option("--months", metavar="MONTHS", help="Only in these months, such as 1,4,7,10.")
@click.option("--always", is_flag=True, help="Remove the schedule.")
@change_options
def schedule(options: CommandOptions, /, names: tuple[str, ...], always: bool, **fields: str | int | None) -> None:
    """Set the schedule of locations. Without options, show it.

    The change takes effect at once. If the application declares a schedule, applying it again restores that schedule.

    \b
    Examples:
      postroom location schedule drop --window 08:00-18:00 --weekdays mon,tue,wed,thu,fri --zone Europe/Berlin
      postroom location schedule drop --always
    """
    from postroom.operations.all_or_none import all_or_none
    from postroom.operations.ports import receive_locations

    given = {name: value for name, value in fields.items() if value is not None and (name, value) != ("zone", "UTC")}
    if always and given:
        raise click.UsageError("--always cannot be combined with other options.")
    if not always and not given:
        with open_messagebox(options) as connection:
            found = [receive_locations.get_location(connection, name) for name in names]
        rows = [{"location": location.name, "schedule": str(location.schedule or "always")} for location in found]
        show_rows(rows, _SCHEDULE_COLUMNS, options.output)
        return
    when = None if always else _parse_schedule(given)
    with open_messagebox(options) as connection:
        all_or_none(connection, names, lambda connection, name: receive_locations.set_schedule(connection, name, when))
    text = "always" if when is None else str(when)
    show_rows([{"location": name, "schedule": text} for name in names], _SCHEDULE_COLUMNS, options.output)


def _change(
    options: CommandOptions, names: tuple[str, ...], change: Callable[[Connection, str], None], done: str
) -> None:
    from postroom.operations.all_or_none import all_or_none

    with open_messagebox(options) as connection:
        all_or_none(connection, names, change)
    show_rows([{"location": name, "now": done} for name in names], ["location", "now"], options.output)


def _parse_schedule(options: Mapping[str, str | int]) -> Schedule:
    """Build a schedule from the command's options. Lists are separated by commas, the ends of a window by a dash."""
    from postroom.application import Schedule

    fields: dict[str, Any] = dict(options)
    if "window" in options:
        fields["window"] = [part.strip() for part in str(options["window"]).split("-")]
    if "weekdays" in options:
        fields["weekdays"] = _split_list(options["weekdays"])
    if "month_weekdays" in options:
        fields["month_weekdays"] = [item.split() for item in _split_list(options["month_weekdays"])]
    for name in ("month_days", "months"):
        if name in options:
            fields[name] = [-1 if item == "last" else _parse_number(name, item) for item in _split_list(options[name])]
    return Schedule(**fields)


def _split_list(text: str | int) -> list[str]:
    return [item.strip() for item in str(text).lower().split(",")]


def _parse_number(field: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DefinitionError(f"{field}: {text!r} is not a number.", hint="Write, for example, 1,15.") from None
