"""A connection to a MessageBox that this version of Postroom can work with."""

from __future__ import annotations

from postroom.errors import StateError
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.migrate import is_current


def open_messagebox(url: str, *, application_name: str = "postroom") -> Connection:
    """Connects to the MessageBox at ``url``; StateError if there is none in it, or one of another version."""
    connection = connect(url, application_name=application_name)
    try:
        if not is_current(connection):
            raise StateError(
                "The database has no MessageBox that this version of Postroom can work with.",
                why="Nothing was ever applied to it, or it was made by an older version.",
                hint="Run 'postroom apply APP', which makes or upgrades it.",
            )
    except BaseException:
        connection.close()
        raise
    return connection
