"""A deployed application on its database: what `postroom up` and the demo have in common."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from postroom.application.definition import ApplicationDefinition
from postroom.messagebox.connection import connect
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.messagebox.migrate import migrate
from postroom.messagebox.permission import refusals_told
from postroom.operations.deployment import apply
from postroom.operations.home import held_home
from postroom.operations.receiving import make_watched_folders
from postroom.operations.supervisor import Say, SparkOptions, Supervisor


@contextmanager
def deployed(
    definition: ApplicationDefinition, home: Path, *, database: str | None, spark: SparkOptions, say: Say
) -> Iterator[Supervisor]:
    """The application applied to its MessageBox, and a supervisor that is ready to run what it needs."""
    with held_home(home):
        if database is not None:
            yield _apply(definition, database, home, None, spark, say)
            return
        say("Starting PostgreSQL")
        with EmbeddedServer(server_folder(home)) as server:
            yield _apply(definition, server.url(), home, server, spark, say)


def _apply(
    definition: ApplicationDefinition,
    url: str,
    home: Path,
    server: EmbeddedServer | None,
    spark: SparkOptions,
    say: Say,
) -> Supervisor:
    with refusals_told():
        migrate(url)
        with connect(url, application_name="postroom apply") as connection:
            apply(connection, definition, home=home)
            for problem in make_watched_folders(connection, home):
                say(problem)
    say(f"Application {definition.name} is deployed")
    return Supervisor(url, home, server=server, spark=spark, say=say)
