"""Connect a command to its MessageBox."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from postroom.cli.options import CommandOptions
from postroom.errors import DefinitionError, Unavailable

if TYPE_CHECKING:
    from postroom.operations.connection import Connection


@contextmanager
def open_messagebox(options: CommandOptions, *, create: bool = False) -> Iterator[Connection]:
    """Connect to the MessageBox that the options name. With ``create``, create or upgrade it first."""
    from postroom.operations import connection as operations

    with options.messagebox(create=create) as url:
        with _add_source_of_address(options):
            messagebox = operations.open_messagebox(url, create=create)
        with messagebox as connection:
            if options.reason is not None:
                operations.set_reason(connection, options.reason)
            yield connection


def describe_stopped_server(options: CommandOptions) -> str:
    """Return whether the embedded server has stopped with the command that ran it. Empty for another server."""
    from postroom.operations.connection import is_embedded_server_running

    if options.database is not None:
        return ""
    if not is_embedded_server_running(options.home):
        return "PostgreSQL has stopped."
    return "PostgreSQL keeps running, because another process uses this home folder."


@contextmanager
def _add_source_of_address(options: CommandOptions) -> Iterator[None]:
    """Add to errors whether an option or an environment variable gave the address of the database."""
    try:
        yield
    except (Unavailable, DefinitionError) as error:
        if options.database:
            error.hint = f"{error.hint} The address comes from {options.database_from}."
        raise
