"""The commands enlist, start, stop and unenlist of send ports, send port groups and orchestrations."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import click

from postroom.cli.connection import open_messagebox
from postroom.cli.options import CommandOptions, change_options, names_argument
from postroom.cli.rendering.output import show_rows

if TYPE_CHECKING:
    from collections.abc import Callable

    from postroom.operations.connection import Connection
    from postroom.operations.ports.states import StateChange


def add_state_commands(group: click.Group, module: str, *, example: str, **helps: str) -> None:
    """Add a command for each of ``helps``. The key is the name of a function of ``module`` that changes a state, and
    the value is the help text. The module is imported when a command runs."""
    for operation, text in helps.items():
        help_text = f"{text}\n\n\b\nExample:\n  postroom {group.name} {operation} {example}"
        group.command(operation, help=help_text)(_build_command(module, operation))


def _build_command(module: str, operation: str) -> Callable[..., None]:
    @names_argument
    @change_options
    def command(options: CommandOptions, names: tuple[str, ...]) -> None:
        _change_states(options, names, getattr(import_module(module), operation))

    return command


def _change_states(
    options: CommandOptions, names: tuple[str, ...], change: Callable[[Connection, str], StateChange]
) -> None:
    """Change the states in one transaction and show the results."""
    from postroom.operations.all_or_none import all_or_none
    from postroom.operations.ports.states import finish_resuming

    with open_messagebox(options) as connection:
        rows = [
            {
                "name": done.name,
                "before": done.before.name.lower(),
                "after": done.after.name.lower(),
                "resumed": done.resumed,
            }
            for done in (finish_resuming(connection, one) for one in all_or_none(connection, names, change))
        ]
    resumed = ["resumed"] if any(row["after"] == "started" for row in rows) else []
    show_rows(rows, ["name", "before", "after", *resumed], options.output)
