"""`postroom lookup`: list lookups, show their entries, and load entries from a file."""

from __future__ import annotations

from pathlib import Path

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.list_commands import add_list_command
from postroom.cli.options import CommandOptions, common_options, limit_option
from postroom.cli.rendering.output import Format, report_truncation, show_record, show_rows
from postroom.operations.records import to_json, to_row


@click.group(cls=CommandGroup)
def lookup() -> None:
    """List lookups, show their entries, and load entries from a file.

    A lookup keeps the newest message of each key. Components, maps, orchestrations and programs read it.

    \b
    Example:
      postroom lookup show Customers C-17
    """


add_list_command(
    lookup,
    "postroom.operations.lookups:list_lookups",
    "name application host key_property entries waiting suspended changed_at",
    help="List the lookups, with the number of their entries and of their messages in the queues.",
    example="Example:\n  postroom lookup list --application shop",
    options=[click.option("--application", metavar="NAME", help="Only lookups of this application.")],
    empty="No lookups. Declare one with app.lookup(...), and apply the application.",
    optional="application host",
)


@lookup.command()
@click.argument("name")
@click.argument("key", required=False)
@limit_option(default=200)
@common_options
def show(options: CommandOptions, name: str, key: str | None, limit: int) -> None:
    """Show the keys of a lookup, or the message of one key. Operators see the keys only.

    \b
    Example:
      postroom lookup show Customers C-17
    """
    from postroom.operations.lookups import get_entry, list_entries
    from postroom.values import value_to_text

    with open_messagebox(options) as connection:
        if key is None:
            entries = list_entries(connection, name, limit=limit + 1)
        else:
            found = get_entry(connection, name, key)
    if key is None:
        columns = ["key", "message_id", "applied_at", "content_type", "size"]
        show_rows(entries[:limit], columns, options.output, empty="No entries.")
        report_truncation(len(entries), limit, options.output)
        return
    if options.output is Format.JSON:
        click.echo(to_json(found))
        return
    show_record({each: getattr(found, each) for each in ("key", "message_id", "content_type")}, options.output)
    click.secho("\nContext", bold=True)
    properties = [{**to_row(row), "value": value_to_text(row.value)} for row in found.context]
    show_rows(properties, ["property", "value", "promoted"], options.output)
    click.secho("\nBody", bold=True)
    click.echo(found.body.decode(errors="replace"))


@lookup.command()
@click.argument("name")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--key", "column", metavar="COLUMN", help="Column of the keys.  [default: the name of the key property]")
@click.option(
    "-p", "--promoted", multiple=True, metavar="PROPERTY=VALUE", help="A promoted property that the filter compares."
)
@click.option(
    "--format",
    "file_format",
    type=click.Choice(["csv", "jsonl"]),
    help="Format of the file.  [default: csv for *.csv, otherwise jsonl]",
)
@click.option("--host", metavar="HOST", help="Publish for this host.  [default: the default host]")
@common_options
def load(
    options: CommandOptions,
    name: str,
    file: Path,
    column: str | None,
    promoted: tuple[str, ...],
    file_format: str | None,
    host: str | None,
) -> None:
    """Publish each row of a file as a message for a lookup.

    FILE is a CSV file with the names of its columns in the first line, or has a JSON object in each line. The body of
    each message is the row as JSON. The message promotes the key, and the values that the filter of the lookup compares
    with ==. It goes to all subscribers whose filter matches. If a row is bad, the bad rows are listed and nothing is
    published.

    \b
    Example:
      postroom lookup load Customers customers.csv --key customer_id
    """
    from typing import cast

    from postroom.operations.lookup_files import FileFormat, load_entries

    with open_messagebox(options) as connection:
        count = load_entries(
            connection,
            name,
            file,
            format=cast("FileFormat | None", file_format),
            column=column,
            promoted=promoted,
            host=host,
        )
    show_record({"lookup": name, "published": count}, options.output)
