"""`postroom location`: receive locations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.frame import Frame, frame_options, pass_frame
from postroom.cli.lazy import Noun
from postroom.cli.opening import opened
from postroom.cli.output import show_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.messagebox.connection import Connection

_NAMES = click.argument("names", nargs=-1, required=True, metavar="NAME...")


@click.group(cls=Noun)
def location() -> None:
    """List, enable and disable receive locations.

    \b
    Example:
      postroom location disable drop
    """


@location.command("list")
@frame_options
@pass_frame
def list_(frame: Frame) -> None:
    """List the receive locations, with what they have in hand.

    \b
    Example:
      postroom location list -o json
    """
    from postroom.operations.locations import list_locations

    with opened(frame) as connection:
        rows = [one.as_dict() for one in list_locations(connection)]
    columns = [
        "location",
        "port",
        "application",
        "host",
        "enabled",
        "waiting",
        "suspended",
        "problems",
        "pipeline",
        "uri",
    ]
    show_rows(rows, columns, frame.output, empty="No receive locations. Apply an application: postroom apply APP")


@location.command()
@_NAMES
@frame_options
@pass_frame
def enable(frame: Frame, names: tuple[str, ...]) -> None:
    """Let locations take in messages.

    \b
    Example:
      postroom location enable drop
    """
    from postroom.operations import locations

    _change(frame, names, locations.enable, "enabled")


@location.command()
@_NAMES
@frame_options
@pass_frame
def disable(frame: Frame, names: tuple[str, ...]) -> None:
    """Let locations take in nothing more; what they have taken already goes its way.

    \b
    Example:
      postroom location disable drop
    """
    from postroom.operations import locations

    _change(frame, names, locations.disable, "disabled")


def _change(frame: Frame, names: tuple[str, ...], change: Callable[[Connection, str], None], done: str) -> None:
    with opened(frame) as connection:
        for name in names:
            change(connection, name)
    show_rows([{"location": name, "now": done} for name in names], ["location", "now"], frame.output)
