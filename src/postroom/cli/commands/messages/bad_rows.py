"""`postroom instance save-rows` and `resume-rows`: correct all bad rows of a bulk file in one file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.connection import open_messagebox
from postroom.cli.options import ID, CommandOptions, change_options, common_options
from postroom.cli.rendering.output import Format
from postroom.operations.records import to_json

if TYPE_CHECKING:
    from postroom.operations.short_ids import ShortId


@click.command("save-rows")
@click.argument("instance_id", type=ID, metavar="ID")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@common_options
def save_rows(options: CommandOptions, instance_id: ShortId, file: Path) -> None:
    """Save all suspended bad rows of a bulk file, one per line. ID is one of them.

    A second file with the suffix .instances contains the instance of each line.

    \b
    Example:
      postroom instance save-rows 01985c1e-7f0a-8c8e-b5d1-4a2f3c800000 bad.csv
    """
    from postroom.errors import format_count
    from postroom.operations.bad_rows import save_bad_rows
    from postroom.operations.short_ids import find_id

    with open_messagebox(options) as connection:
        saved = save_bad_rows(connection, find_id(connection, instance_id, "instance"), file)
    if options.output is Format.JSON:
        click.echo(to_json(saved))
        return
    click.echo(f"{file} has {format_count(saved.rows, 'bad row')} of {saved.source}.")
    click.echo(f"Correct the lines, but keep their order. Then: postroom instance resume-rows {file}")


@click.command("resume-rows")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@change_options
def resume_rows(options: CommandOptions, file: Path) -> None:
    """Resume bad rows with the corrected lines of a file that save-rows has written.

    A row whose line was not changed, or is empty, stays suspended.

    \b
    Example:
      postroom instance resume-rows bad.csv
    """
    from postroom.errors import format_count
    from postroom.operations.bad_rows import resume_bad_rows

    with open_messagebox(options) as connection:
        resumed = resume_bad_rows(connection, file)
    if options.output is Format.JSON:
        click.echo(to_json(resumed))
        return
    others = {"unchanged": resumed.unchanged, "not suspended any more": resumed.not_suspended}
    texts = [f"{format_count(resumed.resumed, 'row')} resumed", *(f"{n:,} {text}" for text, n in others.items() if n)]
    click.echo(f"{', '.join(texts)}.".capitalize())
    if resumed.resumed:
        click.echo("The host of the receive location publishes them. If it is not running: postroom host run NAME")
