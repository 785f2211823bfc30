"""Write the story of an orchestration instance: as tables, and as a sequence diagram in Mermaid's language."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.rendering.output import Format, show_rows
from postroom.errors import NotAllowed, StateError, format_count

if TYPE_CHECKING:
    from postroom.operations.instances.details import InstanceDetails, OrchestrationInstanceDetails
    from postroom.operations.instances.queries import Instance
    from postroom.operations.orchestrations.story import Story

#: Maximum number of lines that are drawn. Viewers refuse diagrams of more than 50,000 characters.
MAX_LINES = 300

#: What an instance waits for that waits neither for a message nor for a timer or a step.
_WAITS_FOR = {
    "READY_TO_RUN": "A host that continues it.",
    "SUSPENDED": "An operator who resumes or terminates it.",
    "SUSPENDED_NOT_RESUMABLE": "An operator who terminates it.",
}


def show_story(story: OrchestrationInstanceDetails) -> None:
    """Write the story of an instance as tables below its record."""
    click.echo("\nStory:")
    if story.journals:
        click.echo(f"It has started again with a fresh journal {format_count(story.journals, 'time')}.")
    hidden = "The login may not read journals." if story.story is None else "Nothing is stored yet."
    show_rows(story.story or (), ["time", "what", "message_id", "due", "place"], Format.TABLE, empty=hidden)
    click.echo("\nWaits for:")
    show_rows(
        story.waits_for, ["what", "due", "place"], Format.TABLE, empty=_WAITS_FOR.get(story.state.name, "Nothing.")
    )
    if story.unreceived:
        click.echo(f"Routed to it and not received yet: {format_count(story.unreceived, 'message')}.")


def write_graph(file: Path, instance: InstanceDetails) -> None:
    """Draw the story of an instance into a file. Raise StateError if it has none, and NotAllowed if the login may not
    read it."""
    from postroom.operations.instances.details import OrchestrationInstanceDetails

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
        file.write_text("\n".join(draw_story(instance, instance)) + "\n", encoding="utf-8")
    except OSError as error:
        raise click.FileError(str(file), error.strerror or "") from error
    click.echo(f"The story was drawn into {file}.", err=True)


def draw_story(instance: Instance, story: Story) -> Iterator[str]:
    """Yield the lines of the diagram: what came from the MessageBox and went there, and dashed what it waits for."""
    lines = story.story or ()
    yield "sequenceDiagram"
    yield f"    title {_escape(f'{instance.display_name}, instance {instance.instance_id}: {instance.state}')}"
    yield "    participant M as MessageBox"
    yield f"    participant I as {_escape(instance.display_name)}"
    if story.journals:
        yield f"    Note over I: started again with a fresh journal {format_count(story.journals, 'time')}"
    if len(lines) > MAX_LINES:
        yield f"    Note over I: {format_count(len(lines) - MAX_LINES, 'earlier line')} not drawn"
    time: datetime | None = None
    for line in lines[-MAX_LINES:]:
        if line.time != time:
            yield f"    Note over I: {line.time.astimezone(UTC):%Y-%m-%d %H:%M:%S.%f} UTC"
        time = line.time
        start, end = ("M" if line.kind == "received" else "I"), ("M" if line.kind == "sent" else "I")
        message = None if line.message_id is None else f"message {str(line.message_id)[:13]}"
        text = _describe(line.what, line.place, message, line.due)
        yield f"    {start}{'-x' if line.has_failed else '->>'}{end}: {text}"
    for wait in story.waits_for:
        text = _describe(f"waits for {wait.what}", wait.place, None, wait.due)
        yield f"    {'M' if wait.kind == 'message' else 'I'}-->>I: {text}"
    if story.unreceived:
        yield f"    Note over I: {format_count(story.unreceived, 'message')} not received yet"
    if instance.error_description:
        yield f"    Note over I: suspended: {_escape(instance.reason)} ({instance.error_code})"


def _describe(what: str, place: str | None, message: str | None, due: datetime | None) -> str:
    time = None if due is None else f"due {due.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"
    details = ", ".join(filter(None, [place, message, time]))
    return _escape(f"{what} ({details})" if details else what)


def _escape(text: str) -> str:
    """Return the text on one line. Characters that have a meaning in Mermaid or HTML are written as their number."""
    if len(text) > 120:
        text = f"{text[:119]}…"
    safe = "".join(one if one.isprintable() else " " for one in text)
    return "".join(one if one.isalnum() or one in " .,:'()/_=-…" else f"#{ord(one)};" for one in safe)
