"""Open the MessageBox in a database or in a home folder."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroom.errors import NotFound
from postroom.messagebox.audit import set_reason as set_reason
from postroom.messagebox.connection import Connection as Connection
from postroom.messagebox.connection import connect as connect
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.messagebox.embedded.binaries import embedded_version as embedded_version
from postroom.messagebox.migrate import connect_to_messagebox
from postroom.messagebox.migrate import migrate as migrate


def has_embedded_messagebox(home: Path) -> bool:
    """Return True if the home folder has an embedded MessageBox."""
    return server_folder(home).exists()


@contextmanager
def run_embedded_messagebox(home: Path, *, create: bool = False) -> Iterator[str]:
    """Run the embedded server until the context ends, and yield its URL.

    Only ``create`` creates a new embedded MessageBox. Otherwise a listing in the wrong folder would show an empty one
    instead of an error."""
    if not create and not has_embedded_messagebox(home):
        raise NotFound(
            f"There is no MessageBox in {home.absolute()}.",
            why="Neither --database nor POSTROOM_DATABASE is given, and the folder has no embedded MessageBox.",
            hint="Use --home for another folder, or create a MessageBox: postroom apply APP, or postroom up APP.",
        )
    with EmbeddedServer(server_folder(home)) as server:
        yield server.url()


def is_embedded_server_running(home: Path) -> bool:
    """Return True if the embedded server of the home folder is running."""
    return EmbeddedServer(server_folder(home)).pid is not None


def destroy_embedded_messagebox(home: Path) -> None:
    """Stop the embedded server of the home folder, and delete its data."""
    EmbeddedServer(server_folder(home)).destroy()


def open_messagebox(url: str, *, create: bool = False) -> Connection:
    """Connect to the MessageBox for an operator. With ``create``, create or upgrade it first."""
    if create:
        migrate(url)
    return connect_to_messagebox(url, application_name="postroom command line")
