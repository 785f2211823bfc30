"""`postroom message`: list, show and save stored messages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.list_commands import add_list_command
from postroom.cli.options import ID, CommandOptions, common_options
from postroom.cli.rendering.output import Format, show_record, show_rows
from postroom.operations.records import to_json, to_row

if TYPE_CHECKING:
    from postroom.operations.short_ids import ShortId

_ID = click.argument("message_id", type=ID)


@click.group(cls=CommandGroup)
def message() -> None:
    """List, show and save stored messages.

    MESSAGE_ID may also be the id of an instance: the command then uses its message.

    \b
    Example:
      postroom message list
    """


add_list_command(
    message,
    "postroom.operations.messages:list_messages",
    "message_id published_at message_type failed_at parts size published_by",
    help="List the messages in the spool, the latest first.",
    example="Example:\n  postroom message list --type order --limit 10",
    options=[click.option("--type", "message_type", metavar="TYPE", help="Only messages with this BTS.MessageType.")],
    limit=50,
    empty=lambda message_type, **_: (
        "The spool is empty." if message_type is None else f"No message in the spool has the type {message_type!r}."
    ),
    optional="published_by parts failed_at published_at",
)


@message.command()
@_ID
@common_options
def show(options: CommandOptions, message_id: ShortId) -> None:
    """Show a message: its properties, message predicates, parts, and the instances that refer to it.

    \b
    Example:
      postroom message show 01985c1e-7f0a-8c8e-b5d1-4a2f3c000000
    """
    from postroom.operations.messages import get_message_details, list_referring_instances, resolve_message_id
    from postroom.values import value_to_text

    with open_messagebox(options) as connection:
        found = get_message_details(connection, resolve_message_id(connection, message_id))
        instances = list_referring_instances(connection, found.message_id)
    if options.output is Format.JSON:
        click.echo(to_json(found))
        return
    names = ("message_id", "published_at", "published_by")
    show_record({name: getattr(found, name) for name in names}, options.output)
    # Values in the form of filters and of PROPERTY=VALUE on a command line.
    properties = [{**to_row(row), "value": value_to_text(row.value)} for row in found.context]
    required = [{**to_row(row), "value": value_to_text(row.value)} for row in found.predicates]
    referring = [{**to_row(instance), "service": instance.display_name} for instance in instances]
    for title, rows, columns, empty in (
        ("Context", properties, ["property", "value", "promoted"], "It is empty."),
        *([("Required of receiving hosts", required, ["property", "value"], "")] if required else []),
        ("Parts", found.parts, ["name", "content_type", "size", "is_body"], "It has no parts."),
        ("Instances", referring, ["instance_id", "state", "service", "reason"], "No instance refers to it any more."),
    ):
        click.secho(f"\n{title}", bold=True)
        show_rows(rows, columns, options.output, empty=empty)


@message.command()
@_ID
@click.option("--part", metavar="NAME", help="Name of another part, instead of the body.")
@common_options
def body(options: CommandOptions, message_id: ShortId, part: str | None) -> None:
    """Write the body of a message to standard output, unchanged.

    \b
    Example:
      postroom message body 01985c1e-7f0a-8c8e-b5d1-4a2f3c000000 > order.json
    """
    import sys

    from postroom.operations.messages import read_message_part, resolve_message_id

    with open_messagebox(options) as connection:
        for chunk in read_message_part(connection, resolve_message_id(connection, message_id), part):
            sys.stdout.buffer.write(chunk)
    sys.stdout.buffer.flush()


@message.command()
@_ID
@click.option(
    "--to",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path(),
    metavar="DIR",
    help="Target folder.  [default: the current folder]",
)
@common_options
def save(options: CommandOptions, message_id: ShortId, folder: Path) -> None:
    """Save the context and the parts of a message as files, in a folder named after the message id.

    \b
    Example:
      postroom message save 01985c1e-7f0a-8c8e-b5d1-4a2f3c000000 --to ./saved
    """
    from postroom.operations.messages import resolve_message_id, save_message

    with open_messagebox(options) as connection:
        paths = save_message(connection, resolve_message_id(connection, message_id), folder)
    rows = [{"file": path, "bytes": path.stat().st_size} for path in paths]
    show_rows(rows, ["file", "bytes"], options.output)
