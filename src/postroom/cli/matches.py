"""How the messages that a filter matches are written, or the nearest if it matches none."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from postroom.cli.output import Format, show_rows

if TYPE_CHECKING:
    from postroom.operations.explain.matching_messages import ComparedMessage, MatchedMessages


def show_matched(found: MatchedMessages) -> None:
    """The matches, or the nearest misses with what each fails by."""
    if not found.looked_at:
        click.echo("The spool is empty.")
        return
    looked_at = "the only message" if found.looked_at == 1 else f"the {found.looked_at:,} messages that were looked at"
    click.echo(f"{found.matching:,} of {looked_at} would match.")
    if found.messages:
        click.echo()
        rows = [_row(one) for one in found.messages]
        columns = ["message_id", "published_at", "message_type"]
        if not all(one.authorised for one in found.messages):
            columns.append("authorised")
        show_rows(rows, columns, Format.TABLE)
        if found.matching > len(rows):
            click.echo(f"\n{found.matching - len(rows):,} more match.")
    if found.nearest:
        click.echo("The nearest:")
    for one in found.nearest:
        click.echo(f"\n{click.style(str(one.message_id), bold=True)}  {_misses(one)}")
        for words in _failed(one):
            click.echo(f"    {words}")


def matched_as_plain(found: MatchedMessages) -> dict[str, Any]:
    """For programs."""
    return {
        "looked_at": found.looked_at,
        "matching": found.matching,
        "messages": [_row(one) for one in found.messages],
        "nearest": [{**_row(one), "fails": _failed(one)} for one in found.nearest],
    }


def _row(one: ComparedMessage) -> dict[str, Any]:
    return {
        "message_id": one.message_id,
        "published_at": one.published_at,
        "message_type": one.message_type,
        "authorised": one.authorised,
    }


def _misses(one: ComparedMessage) -> str:
    from postroom.cli.verdicts import failed_in_words

    return f"misses by {failed_in_words(one.explanation.nearest)}"


def _failed(one: ComparedMessage) -> list[str]:
    return [each.words for each in one.explanation.nearest.predicates if not each.holds]
