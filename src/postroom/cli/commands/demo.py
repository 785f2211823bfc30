"""`postroom demo`: the example application on a few hundred orders, shown live and checked."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.frame import Frame, frame_options, pass_frame
from postroom.cli.output import Format, to_json

if TYPE_CHECKING:
    from rich.console import Group

    from postroom.operations.demo import Figures

_EXAMPLE = Path("examples") / "orders" / "app.py"
_SECONDS_BETWEEN_LINES = 2.0


@click.command()
@click.option(
    "--app",
    type=click.Path(dir_okay=False, path_type=Path),
    default=_EXAMPLE,
    show_default=True,
    help="The example application.",
)
@click.option("--keep", is_flag=True, help="Keep the home folder, to look around in it afterwards.")
@frame_options
@pass_frame
def demo(frame: Frame, app: Path, keep: bool) -> None:
    """Run the example application on a few hundred orders, show what arrives where, and check it.

    \b
    Example:
      postroom demo
    """
    import shutil

    from postroom.application.loading.load import load
    from postroom.errors import NotFound, StateError
    from postroom.messagebox.embedded import EmbeddedServer, server_folder
    from postroom.operations.demo import Demo
    from postroom.operations.running.supervisor import SparkOptions
    from postroom.operations.running.up import deploy_and_supervise

    if not app.exists():
        raise NotFound(
            f"There is no {app} here.",
            why="The demo runs the example application, which comes with the source.",
            hint="Run it in the folder of the clone, or name the file with --app.",
        )
    home = (frame.home if frame.home != Path() else Path("demo-home")).absolute()
    if (home / ".postroom").exists():
        raise StateError(
            f"{home} is in use already.",
            why="The demo counts from zero.",
            hint=f"Remove {home}, or name another --home.",
        )
    definition = load(app)
    live = _Live(quiet=frame.output is Format.JSON)
    live.say(f"Running {app} in {home}; PostgreSQL and Spark take a few seconds to start")
    try:
        spark = SparkOptions(master="local[2]")
        with deploy_and_supervise(definition, home, database=None, spark=spark, say=live.say) as supervisor, live:
            expected, actual, differences = Demo(supervisor, supervisor.url, home, live.show).run()
    finally:
        if not keep:
            EmbeddedServer(server_folder(home)).destroy()
            shutil.rmtree(home, ignore_errors=True)
    if frame.output is Format.JSON:
        click.echo(to_json(_plain(expected, actual, differences)))
    else:
        _summary(expected, actual)
    if differences:
        raise StateError(f"{len(differences)} things are not as they should be.", why="\n".join(differences[:20]))
    if frame.output is not Format.JSON:
        click.secho("Every order is where it should be, once, byte for byte.", fg="green")
        if keep:
            click.echo(f"Look around:  postroom instance list --home {home}")


class _Live:
    """The state of things while the demo runs: a table that changes in a terminal, a line now and then elsewhere."""

    def __init__(self, *, quiet: bool) -> None:
        from rich.console import Console
        from rich.live import Live

        self._console = Console(stderr=True, highlight=False)
        self._live = Live(console=self._console, refresh_per_second=8) if self._console.is_terminal else None
        self._quiet = quiet
        self._said = ""
        self._next = 0.0

    def __enter__(self) -> None:
        if self._live is not None and not self._quiet:
            self._live.start()

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, what: str) -> None:
        if not self._quiet:
            self._console.print(what, soft_wrap=True)

    def show(self, what: str, figures: Figures) -> None:
        if self._quiet:
            return
        if self._live is not None:
            self._live.update(_table(figures, title=what))
            return
        delivered = ", ".join(f"{port} {count}" for port, count in sorted(figures.delivered.items())) or "nothing yet"
        line = f"{what}: received {figures.received}; delivered: {delivered}"
        if line != self._said and time.monotonic() >= self._next:
            # A line for every change, and not for every look.
            self._said, self._next = line, time.monotonic() + _SECONDS_BETWEEN_LINES
            self._console.print(line, soft_wrap=True)


def _rows(figures: Figures) -> list[tuple[str, int]]:
    rows = [("received", figures.received), ("routed", figures.routed)]
    rows += [(f"delivered to {port}", count) for port, count in sorted(figures.delivered.items())]
    return rows + [(f"suspended: {reason}", count) for reason, count in sorted(figures.suspended.items())]


def _table(figures: Figures, *, title: str) -> Group:
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(show_header=False, box=None)
    for name, count in [*_rows(figures), ("in the queues", figures.waiting)]:
        table.add_row(name, str(count))
    return Group(Text(title, style="italic"), table)  # a title of the table itself would be as narrow as the table


def _summary(expected: Figures, actual: Figures) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table(title="The demo in figures", title_justify="left")
    table.add_column("what")
    table.add_column("expected", justify="right")
    table.add_column("found", justify="right")
    found = dict(_rows(actual))
    for name, count in _rows(expected):
        table.add_row(name, str(count), str(found.get(name, 0)))
    Console().print(table)


def _plain(expected: Figures, actual: Figures, differences: list[str]) -> dict[str, object]:
    return {"expected": dict(_rows(expected)), "found": dict(_rows(actual)), "differences": differences}
