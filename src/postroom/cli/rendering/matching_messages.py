"""Write the messages that a filter matches, or the nearest misses."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from postroom.cli.rendering.explanation_text import describe_failed_predicates
from postroom.cli.rendering.output import Format, show_rows

if TYPE_CHECKING:
    from postroom.operations.explain.matching_messages import MatchingMessages


def show_matches(found: MatchingMessages) -> None:
    """Write the matches as a table. Without a match, write the nearest misses with the predicates that fail."""
    if not found.scanned:
        click.echo("The spool is empty.")
        return
    if found.scanned == 1:
        click.echo(f"The message that was compared {'would' if found.matching else 'would not'} match.")
    else:
        click.echo(f"{found.matching:,} of the {found.scanned:,} messages that were compared would match.")
    if found.messages:
        click.echo()
        columns = ["message_id", "published_at", "message_type"]
        if not all(message.authorised for message in found.messages):
            columns.append("authorised")
        show_rows(found.messages, columns, Format.TABLE)
        if found.matching > len(found.messages):
            click.echo(f"\n{found.matching - len(found.messages):,} more match.")
    if found.nearest:
        click.echo("The nearest:")
    for message in found.nearest:
        failed = describe_failed_predicates(message.explanation.nearest)
        click.echo(f"\n{click.style(str(message.message_id), bold=True)}  misses by {failed}")
        for text in message.failures:
            click.echo(f"    {text}")
