"""Write the messages that a filter matches, or the nearest misses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from postroom.cli.rendering.explanation_text import describe_failed_predicates
from postroom.cli.rendering.output import Format, show_rows

if TYPE_CHECKING:
    from postroom.operations.explain.matching_messages import ComparedMessage, MatchingMessages


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
        rows = [_to_row(message) for message in found.messages]
        columns = ["message_id", "published_at", "message_type"]
        if not all(message.authorised for message in found.messages):
            columns.append("authorised")
        show_rows(rows, columns, Format.TABLE)
        if found.matching > len(rows):
            click.echo(f"\n{found.matching - len(rows):,} more match.")
    if found.nearest:
        click.echo("The nearest:")
    for message in found.nearest:
        failed = describe_failed_predicates(message.explanation.nearest)
        click.echo(f"\n{click.style(str(message.message_id), bold=True)}  misses by {failed}")
        for text in _describe_failures(message):
            click.echo(f"    {text}")


def matches_to_json(found: MatchingMessages) -> dict[str, Any]:
    """Return the matches and the nearest misses."""
    return {
        "looked_at": found.scanned,
        "matching": found.matching,
        "messages": [_to_row(message) for message in found.messages],
        "nearest": [{**_to_row(message), "fails": _describe_failures(message)} for message in found.nearest],
    }


def _to_row(message: ComparedMessage) -> dict[str, Any]:
    return {
        "message_id": message.message_id,
        "published_at": message.published_at,
        "message_type": message.message_type,
        "authorised": message.authorised,
    }


def _describe_failures(message: ComparedMessage) -> list[str]:
    return [predicate.description for predicate in message.explanation.nearest.predicates if not predicate.holds]
