"""`postroom explain`: explain where a message is routed, and why."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.connection import open_messagebox
from postroom.cli.options import ID, CommandOptions, common_options, limit_option, property_options
from postroom.cli.rendering.output import Format
from postroom.operations.records import to_json

if TYPE_CHECKING:
    from postroom.operations.short_ids import ShortId


@click.command()
@click.argument("message_id", required=False, type=ID)
@click.option(
    "--file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Explain a file, read as a receive location would read it.",
)
@click.option("--location", metavar="NAME", help="The receive location that reads the file.  [default: the only one]")
@property_options
@limit_option("--nearest", default=20, help="Maximum number of misses to show, the nearest first.", minimum=0)
@limit_option(default=100, help="Maximum number of matching subscribers to show.", minimum=0)
@limit_option(
    "--documents", default=10, help="Maximum number of documents to explain, if one file or message contains several."
)
@common_options
def explain(
    options: CommandOptions,
    message_id: ShortId | None,
    file: Path | None,
    location: str | None,
    promoted: tuple[str, ...],
    written: tuple[str, ...],
    require: tuple[str, ...],
    nearest: int,
    limit: int,
    documents: int,
) -> None:
    """Show which subscribers receive a message, and why.

    The message is a stored message (MESSAGE_ID is its id or the id of one of its instances), a file as a receive
    location would read it, or a set of properties. Properties are added to those of a message or a file. A message that
    was suspended before its pipeline had read it is read now. All subscribers are compared and counted, and each
    predicate is shown with the value that it was compared with, the nearest misses first. Nothing is published.

    \b
    Examples:
      postroom explain 01985c1e-7f0a-8c8e-b5d1-4a2f3c000000
      postroom explain --file order.json --location drop
      postroom explain --promoted Orders.Region=EU --promoted Orders.Total=12000
    """
    from postroom.cli.rendering.explanation_text import show_explanation
    from postroom.errors import format_count
    from postroom.operations.explain.explanation import (
        ListingLimits,
        describe_ignored_file,
        explain_context,
        explain_file,
        explain_message,
    )
    from postroom.operations.explain.records import record_message
    from postroom.operations.messages import resolve_message_id
    from postroom.operations.properties import parse_context, read_deployed_properties

    if message_id is not None and file is not None:
        raise click.UsageError("Give either the id of a message or --file.")
    if message_id is None and file is None and not (promoted or written or require):
        raise click.UsageError("Give the id of a message, --file or --promoted.")
    ignored = ""
    with open_messagebox(options) as connection:
        extra = parse_context(promoted, written, read_deployed_properties(connection), require)
        limits = ListingLimits(receivers=limit, misses=nearest)
        if message_id is not None:
            resolved = resolve_message_id(connection, message_id)
            explained = explain_message(connection, resolved, extra=extra, documents=documents + 1, limits=limits)
        elif file is not None:
            explained = explain_file(
                connection, file, location=location, extra=extra, documents=documents + 1, limits=limits
            )
            ignored = describe_ignored_file(connection, file, location)
        else:
            explained = [explain_context(connection, extra, title="A message with these properties", limits=limits)]
    # An error message follows its document and is not counted.
    starts = [number for number, explanation in enumerate(explained) if not explanation.is_error]
    has_more = len(starts) > documents
    explained = explained[: starts[documents]] if has_more else explained
    if options.output is Format.JSON:
        click.echo(to_json([record_message(explanation) for explanation in explained]))
        return
    if ignored:
        click.echo(ignored, err=True)
    for number, explanation in enumerate(explained):
        if number:
            click.echo()
        show_explanation(explanation)
    if not explained:
        click.echo("It has no documents.")
    if has_more:
        click.echo(f"\nIt has more than {format_count(documents, 'document')}. Use --documents to explain more.")
