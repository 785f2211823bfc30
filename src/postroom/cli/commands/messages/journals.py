"""`postroom instance save-journal`: save the journal of an orchestration instance, to replay it against new code."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.connection import open_messagebox
from postroom.cli.options import ID, CommandOptions, common_options
from postroom.cli.rendering.output import Format
from postroom.operations.records import to_json

if TYPE_CHECKING:
    from postroom.operations.short_ids import ShortId


@click.command("save-journal")
@click.argument("instance_id", type=ID, metavar="ID")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@common_options
def save_journal(options: CommandOptions, instance_id: ShortId, file: Path) -> None:
    """Save the journal of an orchestration instance, to test whether new code fits it with postroom.testing.replay.

    The file also has the messages that the instance received, with their bodies, and the results of its steps: treat it
    as confidential. Values of sensitive properties are redacted. Operators may not read journals.

    \b
    Example:
      postroom instance save-journal 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000 journal.json
    """
    from postroom.errors import format_count
    from postroom.operations.orchestrations import journals
    from postroom.operations.short_ids import find_id

    with open_messagebox(options) as connection:
        found = find_id(connection, instance_id, "instance")
        saved = journals.save_journal(connection, found, file)
    if options.output is Format.JSON:
        record = {
            "file": file,
            "orchestration": saved.orchestration,
            "version": saved.version,
            "turns": len(saved.turns),
            "messages": len(saved.messages),
            "redacted": saved.redacted,
        }
        click.echo(to_json(record))
        return
    counts = f"{format_count(len(saved.turns), 'turn')} and {format_count(len(saved.messages), 'message')}"
    click.echo(f"{file} has {counts} of {saved.orchestration}, version {saved.version}.")
    if saved.redacted:
        click.echo(f"The values of sensitive properties are redacted: {', '.join(saved.redacted)}.")
    click.echo(f'Replay it in a test: testing.replay({saved.orchestration}, "{file}")')
