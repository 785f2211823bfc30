"""The options of every command: the home folder, the database and the output format.

    @click.command()
    @common_options
    def listing(options: CommandOptions) -> None:
        with options.messagebox() as url:
            ...

The options can be given before the noun or after the verb. After the verb they take precedence.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from postroom.cli.exit_codes import ExitCode
from postroom.cli.rendering.output import Format
from postroom.errors import BadValue

if TYPE_CHECKING:
    from postroom.message import Body
    from postroom.operations.deployment.backlog import Backlog

Command = TypeVar("Command", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class CommandOptions:
    """The values of the common options."""

    home: Path = Path()
    database: str | None = None
    database_from: str = field(default="--database", compare=False)
    """The option or environment variable that gave the address of the database."""
    output: Format = Format.TABLE
    reason: str | None = None
    """Why the command changes something, for the audit."""

    @property
    def has_messagebox(self) -> bool:
        """True if a database is given, or the home folder has an embedded MessageBox."""
        from postroom.operations.connection import has_embedded_messagebox

        return self.database is not None or has_embedded_messagebox(self.home)

    def refuse_database(self, why: str) -> None:
        """Raise UsageError if --database is given to a command that does not use it. The environment variable is
        ignored: it is meant for other commands."""
        if self.database is not None and self.database_from == "--database":
            raise click.UsageError(f"{why} Leave out --database.")

    @contextmanager
    def messagebox(self, *, create: bool = False) -> Iterator[str]:
        """Yield the URL of the MessageBox: the given database, or the embedded server, which runs until the context
        ends. Only ``create`` creates a new embedded MessageBox."""
        if self.database:
            yield self.database
            return
        from postroom.operations.connection import run_embedded_messagebox

        with run_embedded_messagebox(self.home, create=create) as url:
            yield url


_pass_options = click.make_pass_decorator(CommandOptions)


def common_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add --home, --database and -o to a command. It gets their values as its first argument."""
    command = _pass_options(command)
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def change_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the common options and --reason to a command that changes something."""
    return _REASON(common_options(command))


def to_backlog(choice: str | None) -> Backlog | None:
    """Return the choice of --backlog."""
    from postroom.operations.deployment.backlog import Backlog

    return None if choice is None else Backlog(choice)


def get_output(context: click.Context) -> Format:
    """Return the output format that was chosen in this context or in a nested one, even if that has ended."""
    return Format(context.meta.get(_OUTPUT, Format.TABLE))


def guess_output(arguments: Sequence[str]) -> Format:
    """Guess the output format of a command line that could not be parsed."""
    output = Format.TABLE
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        for option in (f"{argument} {following}", argument):
            if option.lower() in ("-o json", "-ojson", "--output json", "--output=json"):
                output = Format.JSON
    return output


def _store_option(context: click.Context, parameter: click.Parameter, value: Any) -> None:
    if value is not None:
        assert parameter.name is not None
        chosen = {parameter.name: value} | ({"database_from": "--database"} if parameter.name == "database" else {})
        context.obj = replace(context.ensure_object(CommandOptions), **chosen)
        context.meta[_OUTPUT] = context.obj.output


class _IdType(click.ParamType):  # type: ignore[type-arg]  # generic only in later versions
    """An id, or the start of an id. Converted to a ShortId."""

    name = "id"

    def convert(self, value: Any, parameter: click.Parameter | None, context: click.Context | None) -> Any:
        from postroom.operations.short_ids import ShortId

        try:
            return value if isinstance(value, ShortId) else ShortId.parse(value)
        except BadValue as error:
            self.fail(error.join_sentences(), parameter, context)


ID = _IdType()

#: What a deployment does with the instances of removed ports, locations and orchestrations.
backlog_option = click.option(
    "--backlog",
    type=click.Choice(["keep", "reroute", "terminate"]),
    help="What becomes of the instances of removed ports, locations and orchestrations: they stay, are published again "
    "by the current subscriptions, or are deleted. Required if there are any.",
)

allow_incompatible_option = click.option(
    "--allow-incompatible",
    is_flag=True,
    help="Apply although waiting instances of orchestrations do not fit the changed code. They are suspended.",
)

_PROPERTY_OPTIONS = (
    click.option(
        "-p", "--promoted", multiple=True, metavar="PROPERTY=VALUE", help="A promoted property, used for routing."
    ),
    click.option(
        "-w", "--written", multiple=True, metavar="PROPERTY=VALUE", help="A written property, not used for routing."
    ),
    click.option(
        "-r",
        "--require",
        multiple=True,
        metavar="PROPERTY=VALUE",
        help="A message predicate: only hosts with this property receive the message.",
    ),
)


def property_options(command: Command) -> Command:
    """Add --promoted, --written and --require to a command: the properties of a message."""
    for option in reversed(_PROPERTY_OPTIONS):
        command = option(command)
    return command


_REASON = click.option(
    "--reason",
    metavar="TEXT",
    help="Why, for the audit.",
    callback=_store_option,
    expose_value=False,
)

#: The names of the objects that a command changes.
names_argument = click.argument("names", nargs=-1, required=True, metavar="NAME...")

_OUTPUT = "postroom.cli.rendering.output"
_OPTIONS = (
    click.option(
        "--home",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="Home folder, which contains the embedded MessageBox.  [default: the current folder]",
        callback=_store_option,
        expose_value=False,
    ),
    click.option(
        "--database",
        metavar="URL",
        help="MessageBox on your own server, as postgresql://…  [env: POSTROOM_DATABASE]",
        callback=_store_option,
        expose_value=False,
    ),
    click.option(
        "-o",
        "--output",
        type=click.Choice(Format, case_sensitive=False),
        help="Output format.  [default: table]",
        callback=_store_option,
        expose_value=False,
    ),
)


def limit_option(
    name: str = "--limit", *, default: int, help: str = "Maximum number of rows.", minimum: int = 1
) -> Callable[[Command], Command]:
    """Add an option for a maximum number."""
    return click.option(
        name, type=click.IntRange(min=minimum), metavar="N", default=default, show_default=True, help=help
    )


def confirm(question: str, *, refused: str) -> None:
    """Ask a question on standard error. Write ``refused`` and exit with an error unless the answer is yes."""
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort:
        if sys.stdin.isatty():
            raise  # Ctrl-C
        click.echo(err=True)  # standard input is closed
    click.echo(f"{refused} Use --yes to skip the confirmation.", err=True)
    raise click.exceptions.Exit(ExitCode.FAILED)


def open_body(path: Path) -> Body:
    """Return a body that reads the file on demand. A pipe or a device has no size, so it is read at once."""
    from postroom.message import Bytes, FileSlice

    if path.is_file():
        return FileSlice(path=path, length=path.stat().st_size)
    return Bytes(path.read_bytes())
