"""Write tables, JSON and errors."""

from __future__ import annotations

import sys
import uuid
from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Literal

import click

from postroom.errors import DefinitionRefused, PostroomError, format_count
from postroom.operations.records import get_label, to_json, to_row

if TYPE_CHECKING:
    from rich.table import Table


#: The colours of states in tables.
#: How many elements of a list are shown inside a cell.
_SHOWN_ELEMENTS = 3
_STATE_STYLES = {
    "active": "green",
    "started": "green",
    "enabled": "green",
    "receiving": "green",
    "writing": "green",
    "waiting": "yellow",
    "waiting to retry": "yellow",
    "scheduled": "yellow",
    "stopped": "yellow",
    "disabled": "yellow",
    "throttled": "yellow",
    "not running": "yellow",
    "outside its schedule": "yellow",
    "failing": "red",
    "suspended": "red",
    "suspended, not resumable": "red",
}


class Format(StrEnum):
    """The output format."""

    TABLE = "table"
    JSON = "json"


def show_rows(
    records: Sequence[object],
    columns: Sequence[str],
    output: Format,
    *,
    empty: str = "",
    optional: Sequence[str] = (),
) -> None:
    """Write a listing of records or mappings. ``columns`` are the fields that a table shows, in order. JSON has every
    field. A terminal that is too narrow does not show the ``optional`` columns, the first of them is left out first.

    >>> show_rows([{"name": "Europe", "state": "started"}], ["name", "state"], options.output, empty="No ports.")
    """
    if output is Format.JSON:
        click.echo(to_json(records))
        return
    rows = [to_row(record) for record in records]
    if not rows and empty:
        click.echo(empty)
        return
    from rich.table import Table
    from rich.text import Text  # plain text: a value is not markup

    columns = _choose_columns(rows, columns, optional)
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        is_numeric = bool(rows) and all(_is_number(row.get(column)) for row in rows)
        has_ids = any(isinstance(row.get(column), uuid.UUID) for row in rows)
        justify: Literal["left", "right"] = "right" if is_numeric else "left"
        table.add_column(column.replace("_", " "), justify=justify, overflow="fold", no_wrap=has_ids)
    for row in rows:
        texts = {column: Text(to_text(row.get(column))) for column in columns}
        if "state" in texts:
            texts["state"].stylize(_STATE_STYLES.get(texts["state"].plain, ""))
        table.add_row(*texts.values())
    _write(table)


def show_paragraphs(rows: Sequence[tuple[str, str]], output: Format) -> None:
    """Write texts that are too long for a table below it, a paragraph for each name. JSON output has none."""
    if output is not Format.TABLE or not rows:
        return
    import shutil
    import textwrap

    width = max(40, shutil.get_terminal_size().columns) if sys.stdout.isatty() else 10_000
    for name, text in rows:
        click.echo(textwrap.fill(f"{name}: {text}", width, subsequent_indent="  ", break_on_hyphens=False))


def report_truncation(found: int, limit: int, output: Format) -> None:
    """Write a note if a table does not show all rows. ``found`` counts one row more than the limit if there is one."""
    if found > limit and output is Format.TABLE:
        rows = format_count(limit, "row")
        click.echo(f"The list is limited to {rows}. Filter it, or use a higher --limit.", err=True)


def show_record(
    record: object, output: Format, *, tables: Mapping[str, Sequence[str]] | None = None, empty: str = ""
) -> None:
    """Write one record or mapping, a line per field. The fields in ``tables`` are lists of records, which follow as
    tables with the given columns."""
    if output is Format.JSON:
        click.echo(to_json(record))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    row = to_row(record)
    listed = {name: row.pop(name) for name in tables or {}}
    for name, value in row.items():
        table.add_row(name.replace("_", " "), Text(to_text(value)))
    _write(table)
    for name, columns in (tables or {}).items():
        click.echo()
        show_rows(listed[name], columns, output, empty=empty)


def show_error(error: PostroomError, output: Format) -> None:
    """Write what happened, why, and what to do to standard error."""
    if output is Format.JSON:
        described: dict[str, Any] = {"code": error.code, "what": error.what, "why": error.why, "hint": error.hint}
        if isinstance(error, DefinitionRefused):
            described["problems"] = error.problems
        click.echo(to_json({"error": described}), err=True)
        return
    click.echo(f"{click.style('Error:', fg='red', bold=True)} {error.what}", err=True)
    for label, text in (("  why: ", error.why), (" hint: ", error.hint)):
        if text:
            lines = text.splitlines()
            click.echo("\n".join([label + lines[0], *(" " * len(label) + line for line in lines[1:])]), err=True)


def show_usage_error(error: click.UsageError, output: Format) -> None:
    """Write an invalid command line, and which help to read, to standard error."""
    if output is Format.TABLE:
        error.show()
        return
    path = error.ctx.command_path if error.ctx is not None else "postroom"
    described = {"code": "USAGE", "what": error.format_message(), "why": "", "hint": f"See '{path} --help'."}
    click.echo(to_json({"error": described}), err=True)


def to_text(value: Any) -> str:
    """Return a value as text for a table."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, datetime):
        return value.isoformat(sep=" ", timespec="milliseconds")
    if isinstance(value, list | tuple | set | frozenset):
        return ", ".join(map(to_text, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{name}: {_to_short_text(each)}" for name, each in value.items())
    return str(get_label(value) if isinstance(value, Enum) else value)


def _to_short_text(value: Any) -> str:
    """Return a value inside a cell. A list is shortened to its first elements: an operation may list 5,000 ids."""
    if isinstance(value, list | tuple) and len(value) > _SHOWN_ELEMENTS:
        shown = ", ".join(map(str, value[:_SHOWN_ELEMENTS]))
        return f"[{shown} and {len(value) - _SHOWN_ELEMENTS:,} more]"
    return str(value)


def _choose_columns(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], optional: Sequence[str]) -> list[str]:
    """Leave out optional columns until the table fits the terminal. The last column is folded to a third of it."""
    import shutil

    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    kept = [*columns]
    widths = {column: max(len(column), *(len(to_text(row.get(column))) for row in rows)) for column in columns if rows}
    for column in optional:
        needed = sum(widths[name] + 2 for name in kept[:-1]) + min(widths[kept[-1]], width // 3)
        if needed > width and column in kept:
            kept.remove(column)
    return kept


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | None) and not isinstance(value, bool)


def _write(table: Table) -> None:
    import shutil

    from rich.console import Console

    size = shutil.get_terminal_size()
    console = Console(highlight=False, width=size.columns, height=size.lines)  # rich ignores a width without a height
    if not console.is_terminal:
        console = Console(highlight=False, width=10_000)  # do not fold lines in a file or a pipe
    with console.capture() as capture:
        console.print(table)
    # Rich pads every line to the longest one.
    lines = (line.rstrip(" ") for line in capture.get().split("\n"))
    click.echo("\n".join(lines), nl=False, color=console.is_terminal)
