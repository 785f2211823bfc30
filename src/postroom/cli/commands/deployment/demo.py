"""`postroom demo`: run an example application, show its progress and check the result."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.options import CommandOptions, common_options
from postroom.cli.rendering.output import Format
from postroom.operations.records import to_json

if TYPE_CHECKING:
    from rich.console import Group

    from postroom.example_applications import DemoResult, Figures

_SECONDS_BETWEEN_LINES = 2.0


@click.command()
@click.argument("name", default="orders", metavar="[NAME]")
@click.option("--keep", is_flag=True, help="Keep the home folder, to inspect it afterwards.")
@common_options
def demo(options: CommandOptions, name: str, keep: bool) -> None:
    """Run an example application, show where its messages arrive, and check the result.

    The examples are orders (the default), envelope, http, two_way, bulk, component, failures, procurement and lookup.
    'postroom init' copies one of them into a folder.

    The demo runs on its own PostgreSQL server. Its home folder is demo-home unless --home names another one. The folder
    must be empty or missing, and is removed at the end.

    \b
    Examples:
      postroom demo
      postroom demo failures
    """
    import shutil

    from postroom.application.loading.load import load
    from postroom.errors import StateError, format_count
    from postroom.example_applications import find_example, load_steps, run_in_thread, run_steps
    from postroom.operations.connection import connect, destroy_embedded_messagebox
    from postroom.up.deploy_and_supervise import deploy_and_supervise
    from postroom.up.supervisor import SparkOptions

    options.refuse_database("The demo runs on its own PostgreSQL server.")
    app = find_example(name) / "app.py"
    home = (options.home if options.home != Path() else Path("demo-home")).absolute()
    if home.exists() and any(home.iterdir()):
        raise StateError(
            f"{home} is not empty.",
            why="The demo counts all messages in its home folder, and removes the folder at the end.",
            hint="Name a folder that does not exist yet: postroom demo --home DIR",
        )
    definition = load(app)
    live = _Live(quiet=options.output is Format.JSON)
    live.report(f"Running {app} in {home}; PostgreSQL and Spark take a few seconds to start")
    try:
        spark = SparkOptions(master="local[2]")
        with (
            deploy_and_supervise(definition, home, database=None, spark=spark, report=live.report) as supervisor,
            live,
            run_in_thread(supervisor),
            connect(supervisor.url, application_name="postroom demo") as connection,
        ):
            result = run_steps(connection, definition, load_steps(name), home, live.show)
    finally:
        if not keep:
            destroy_embedded_messagebox(home)
            shutil.rmtree(home, ignore_errors=True)
    if options.output is Format.JSON:
        click.echo(to_json(_to_json(result)))
    else:
        _show_summary(result)
    if result.differences:
        count = format_count(len(result.differences), "difference")
        raise StateError(f"The demo failed with {count}.", why="\n".join(result.differences[:20]))
    if options.output is not Format.JSON:
        click.secho("The demo succeeded: every message arrived once, byte for byte.", fg="green")
        if keep:
            click.echo(f"The home folder is kept. Next:  postroom instance list --home {shlex.quote(str(home))}")


class _Live:
    """Shows the figures while the demo runs: a live table in a terminal, otherwise a line after each change."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, refresh_per_second=8) if self._console.is_terminal else None
        self._quiet = quiet
        self._last_line = self._newest_line = ""
        self._next = 0.0

    def __enter__(self) -> None:
        if self._live is not None and not self._quiet:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
        self._print_newest()

    def report(self, what: str) -> None:
        """Write a message."""
        if not self._quiet:
            self._console.print(what, soft_wrap=True)

    def show(self, what: str, figures: Figures) -> None:
        """Show the current step and its figures."""
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(_build_table(figures, title=what))
            return
        line = f"{what}: {', '.join(f'{name} {count}' for name, count in _list_figures(figures)) or 'nothing yet'}"
        self._newest_line = line
        if time.monotonic() >= self._next:
            self._print_newest()

    def _print_newest(self) -> None:
        if self._newest_line != self._last_line:
            self._last_line, self._next = self._newest_line, time.monotonic() + _SECONDS_BETWEEN_LINES
            self._console.print(self._newest_line, soft_wrap=True)


def _list_figures(figures: Figures) -> list[tuple[str, int]]:
    rows = [(f"delivered to {folder}", count) for folder, count in sorted(figures.delivered.items())]
    return rows + [(f"suspended: {code}", count) for code, count in sorted(figures.suspended.items())]


def _build_table(figures: Figures, *, title: str) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None)
    for name, count in [*_list_figures(figures), ("in the queues", figures.waiting)]:
        table.add_row(name, str(count))
    return Group(Text(title, style="italic"), table)  # the table's own title would be as narrow as the table


def _show_summary(result: DemoResult) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="Result of the demo", title_justify="left")
    table.add_column("what")
    table.add_column("expected", justify="right")
    table.add_column("found", justify="right")
    found = dict(_list_figures(result.actual))
    for name, count in _list_figures(result.expected):
        table.add_row(name, str(count), str(found.get(name, 0)))
    Console().print(table)


def _to_json(result: DemoResult) -> dict[str, object]:
    return {
        "expected": dict(_list_figures(result.expected)),
        "found": dict(_list_figures(result.actual)),
        "differences": result.differences,
    }
