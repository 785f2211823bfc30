"""`postroom publish`: publish files as messages."""

from __future__ import annotations

from pathlib import Path

import click

from postroom.cli.connection import open_messagebox
from postroom.cli.options import CommandOptions, common_options, open_body, property_options
from postroom.cli.rendering.output import show_rows


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@property_options
@click.option("--to", metavar="NAME", help="Direct the messages to this send port or send port group.")
@click.option("--key", metavar="KEY", help="Idempotency key. A repeated publish with the same key publishes nothing.")
@click.option("--content-type", metavar="TYPE", help="Media type of the files.  [default: by their names]")
@click.option("--host", metavar="HOST", help="Publish for this host.  [default: the default host]")
@common_options
def publish(
    options: CommandOptions,
    files: tuple[str, ...],
    promoted: tuple[str, ...],
    written: tuple[str, ...],
    require: tuple[str, ...],
    to: str | None,
    key: str | None,
    content_type: str | None,
    host: str | None,
) -> None:
    """Publish each file as one message, all of them or none. The file name - is standard input.

    No receive pipeline reads the files: name the properties for routing with --promoted. A message that is directed
    with --to also goes to all other subscribers whose filter matches. If a message has no subscriber, nothing is
    published, and a routing failure report is stored. Promote BTS.SuspendMessageOnRoutingFailure=true to suspend such
    messages instead. While the host is throttled, the command waits for up to 30 seconds.

    \b
    Example:
      postroom publish order.json --promoted Orders.Region=EU --key order-4711
    """
    import sys
    from mimetypes import guess_type

    from postroom.errors import PublishFailed
    from postroom.message import Body, Bytes, Message, Part
    from postroom.operations import publishing
    from postroom.operations.properties import parse_context, read_deployed_properties

    def body(file: str) -> Body:
        if file == "-":
            return Bytes(sys.stdin.buffer.read())
        return open_body(Path(file))

    with open_messagebox(options) as connection:
        context = parse_context(promoted, written, read_deployed_properties(connection), require)
        messages = [
            Message(
                context=context,
                parts=(
                    Part(
                        body=body(file),
                        content_type=content_type or guess_type(file)[0] or "application/octet-stream",
                    ),
                ),
            )
            for file in files
        ]
        try:
            published = publishing.publish(connection, messages, host=host, to=to, key=key)
        except PublishFailed as error:
            failed = [
                {"file": file, "failure": "" if result.failure is None else result.failure.what}
                for file, result in zip(files, error.results, strict=True)
            ]
            show_rows(failed, ["file", "failure"], options.output)
            error.why = ""  # the table has it for each file
            raise
    rows = [
        {
            "file": file,
            "message_id": message.message_id,
            "subscribers": list(message.subscribers),
            "suspended": message.suspended,
            "repeated": message.repeated,
        }
        for file, message in zip(files, published, strict=True)
    ]
    repeated = ["repeated"] if any(message.repeated for message in published) else []
    show_rows(rows, ["file", "message_id", "subscribers", "suspended", *repeated], options.output)
