"""Write the story of an orchestration instance."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from postroom.cli.rendering.output import Format, show_rows
from postroom.cli.rendering.story_graph import draw_story
from postroom.errors import NotAllowed, StateError, format_count

if TYPE_CHECKING:
    from postroom.operations.instances.listing import Instance
    from postroom.operations.orchestrations.story import Story


def to_story_json(story: Story) -> dict[str, Any]:
    """Return the story for -o json."""
    return {
        "story": None if story.lines is None else [asdict(line) for line in story.lines],
        "waits_for": [asdict(wait) for wait in story.waits],
        "journals": story.journals,
        "unreceived": story.unreceived,
    }


def show_story(story: Story) -> None:
    """Write the story of an instance as tables below its record."""
    shown = to_story_json(story)
    click.echo("\nStory:")
    if story.journals:
        click.echo(f"It has started again with a fresh journal {format_count(story.journals, 'time')}.")
    hidden = "The login may not read journals." if story.lines is None else "Nothing is stored yet."
    show_rows(shown["story"] or [], ["time", "what", "message_id", "due", "place"], Format.TABLE, empty=hidden)
    click.echo("\nWaits for:")
    show_rows(shown["waits_for"], ["what", "due", "place"], Format.TABLE, empty="Nothing.")
    if story.unreceived:
        click.echo(f"{format_count(story.unreceived, 'message')} not received yet.")


def write_graph(file: Path, instance: Instance, story: Story | None) -> None:
    """Draw the story of an instance into a file. Raise StateError if it has none, and NotAllowed if the login may not
    read it."""
    if story is None:
        raise StateError(
            f"Instance {instance.instance_id} has no story.",
            why="Only an orchestration that has started has a journal.",
            hint="Leave out --graph.",
        )
    if story.lines is None:
        raise NotAllowed(
            "The story was not drawn: the login may not read journals.", hint="Run the command as an administrator."
        )
    try:
        file.write_text(draw_story(instance, story), encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(file), error.strerror or "") from error
    click.echo(f"The story was drawn into {file}.", err=True)
