"""The MessageBox that a command works with, open for as long as the command lasts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from postroom.cli.frame import Frame
from postroom.errors import DefinitionError, Unavailable

if TYPE_CHECKING:
    from postroom.messagebox.connection import Connection


@contextmanager
def opened(frame: Frame, *, create: bool = False) -> Iterator[Connection]:
    """A connection to the MessageBox that the command line names; made or upgraded first if ``create`` says so."""
    from postroom.messagebox.migrate import migrate
    from postroom.operations.opening import open_messagebox

    with frame.messagebox(create=create) as url:
        with _told_where_from(frame):
            if create:
                migrate(url)
            messagebox = open_messagebox(url, application_name="postroom command line")
        with messagebox as connection:
            yield connection


@contextmanager
def _told_where_from(frame: Frame) -> Iterator[None]:
    """An address that leads nowhere may not be the one that the user is thinking of."""
    try:
        yield
    except (Unavailable, DefinitionError) as error:
        if frame.database:
            error.hint = f"{error.hint} The address comes from {frame.database_from}."
        raise
