"""Write the story of an orchestration instance."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.rendering.output import Format, show_rows
from postroom.cli.rendering.story_graph import draw_story
from postroom.errors import NotAllowed, StateError, format_count

if TYPE_CHECKING:
    from postroom.operations.orchestrations.story import InstanceDetails, Story


def show_story(story: Story) -> None:
    """Write the story of an instance as tables below its record."""
    click.echo("\nStory:")
    if story.journals:
        click.echo(f"It has started again with a fresh journal {format_count(story.journals, 'time')}.")
    hidden = "The login may not read journals." if story.story is None else "Nothing is stored yet."
    show_rows(story.story or (), ["time", "what", "message_id", "due", "place"], Format.TABLE, empty=hidden)
    click.echo("\nWaits for:")
    show_rows(story.waits_for, ["what", "due", "place"], Format.TABLE, empty="Nothing.")
    if story.unreceived:
        click.echo(f"{format_count(story.unreceived, 'message')} not received yet.")


def write_graph(file: Path, instance: InstanceDetails) -> None:
    """Draw the story of an instance into a file. Raise StateError if it has none, and NotAllowed if the login may not
    read it."""
    from postroom.operations.orchestrations.story import OrchestrationInstanceDetails

    if not isinstance(instance, OrchestrationInstanceDetails):
        raise StateError(
            f"Instance {instance.instance_id} has no story.",
            why="Only an orchestration that has started has a journal.",
            hint="Leave out --graph.",
        )
    if instance.story is None:
        raise NotAllowed(
            "The story was not drawn: the login may not read journals.", hint="Run the command as an administrator."
        )
    try:
        file.write_text(draw_story(instance, instance), encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(file), error.strerror or "") from error
    click.echo(f"The story was drawn into {file}.", err=True)
