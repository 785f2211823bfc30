"""What every command knows: the home folder, the database and the form of the output.

    @click.command()
    @common_options
    @pass_options
    def listing(options: CommandOptions) -> None:
        with options.messagebox() as url:
            ...

The options may stand before the noun or after the verb, where they count more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import click

from postroom.cli.rendering.output import Format
from postroom.errors import NotFound

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The choices that a user made for all commands."""

    home: Path = Path()
    database: str | None = None
    database_from: str = field(default="--database", compare=False)
    """Where the address of the database comes from; a variable is easily forgotten."""
    output: Format = Format.TABLE

    @property
    def has_messagebox(self) -> bool:
        """Is a database given, or was an embedded MessageBox ever made in the home folder?"""
        from postroom.messagebox.embedded import server_folder

        return self.database is not None or server_folder(self.home).exists()

    @contextmanager
    def messagebox(self, *, create: bool = False) -> Iterator[str]:
        """The URL of the MessageBox: the given database, or the embedded one, which runs for as long as this lasts.

        An embedded one that is not there yet is made only if `create` says so: a listing in the wrong folder is to
        say that, and not to show an empty MessageBox.
        """
        if self.database:
            yield self.database
            return
        from postroom.messagebox.embedded import EmbeddedServer, server_folder

        folder = server_folder(self.home)
        if not create and not folder.exists():
            raise NotFound(
                f"There is no MessageBox in {self.home.absolute()}.",
                why="Neither --database nor POSTROOM_DATABASE is given, and no embedded one was ever started there.",
                hint="Name its folder with --home, or make one: postroom apply APP --home DIR, or postroom up APP.",
            )
        with EmbeddedServer(folder) as server:
            yield server.url()


pass_options = click.make_pass_decorator(CommandOptions)


def common_options(command: Command) -> Command:
    """--home, --database and -o for a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def get_output(context: click.Context) -> Format:
    """The form of the output that was chosen in this context or in one nested in it, also after that has ended."""
    return Format(context.meta.get(_OUTPUT, Format.TABLE))


def guess_output(arguments: Sequence[str]) -> Format:
    """The form of the output that a command line asks for, as far as one can tell that could not be understood."""
    asked = Format.TABLE
    for one, following in zip(arguments, [*arguments[1:], ""], strict=True):
        for spelled in (f"{one} {following}", one):
            if spelled.lower() in ("-o json", "-ojson", "--output json", "--output=json"):
                asked = Format.JSON
    return asked


def _keep(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:
        assert parameter.name is not None
        chosen = {parameter.name: value} | ({"database_from": "--database"} if parameter.name == "database" else {})
        context.obj = replace(context.ensure_object(CommandOptions), **chosen)
        context.meta[_OUTPUT] = context.obj.output


_OUTPUT = "postroom.cli.rendering.output"
_OPTIONS = (
    click.option(
        "--home",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Home folder, which contains the embedded MessageBox.  [default: the current folder]",
        callback=_keep,
        expose_value=False,
    ),
    click.option(
        "--database",
        metavar="URL",
        help="MessageBox on your own server, as postgresql://…  [env: POSTROOM_DATABASE]",
        callback=_keep,
        expose_value=False,
    ),
    click.option(
        "-o",
        "--output",
        type=click.Choice(Format, case_sensitive=False),
        help="Output format.  [default: table]",
        callback=_keep,
        expose_value=False,
    ),
)
