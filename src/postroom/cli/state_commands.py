"""The commands enlist, start, stop and unenlist of send ports, send port groups and orchestrations."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import click

from postroom.cli.connection import open_messagebox
from postroom.cli.options import CommandOptions, change_options, names_argument
from postroom.cli.rendering.output import show_rows


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
        from postroom.operations.ports.states import change_states

        with open_messagebox(options) as connection:
            changes = change_states(connection, names, getattr(import_module(module), operation))
        resumed = ["resumed"] if any(change.after == "started" for change in changes) else []
        show_rows(changes, ["name", "before", "after", *resumed], options.output)

    return command
