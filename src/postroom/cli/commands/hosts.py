"""`postroom host`: hosts and the processes that run for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from postroom.cli.commands.host_run import run
from postroom.cli.frame import Frame, frame_options, pass_frame
from postroom.cli.lazy import Noun
from postroom.cli.opening import opened
from postroom.cli.output import Format, show_record, show_rows, to_json

if TYPE_CHECKING:
    from postroom.operations.hosts import HostListing


@click.group(cls=Noun)
def host() -> None:
    """Run hosts, and look at them.

    \b
    Example:
      postroom host run Main --home ./orders-home
    """


host.add_command(run)


@host.command("list")
@frame_options
@pass_frame
def list_(frame: Frame) -> None:
    """List the hosts, with how many processes run for each.

    \b
    Example:
      postroom host list -o json
    """
    from postroom.operations.hosts import list_hosts

    with opened(frame) as connection:
        rows = [_row(one, frame.output) for one in list_hosts(connection)]
    columns = ["name", "is_default", "trusted", "running_instances", "locations", "send_ports", "properties"]
    show_rows(rows, columns, frame.output, empty="No hosts. Apply an application: postroom apply APP")


@host.command()
@click.argument("name")
@frame_options
@pass_frame
def show(frame: Frame, name: str) -> None:
    """Show a host: whether it is trusted, what it can show for itself, the processes that run for it, and its queues.

    \b
    Example:
      postroom host show Main
    """
    from dataclasses import asdict

    from postroom.operations.hosts import host_instances, list_hosts
    from postroom.operations.instances.listing import count_queues

    with opened(frame) as connection:
        instances = [asdict(one) for one in host_instances(connection, name)]
        (listing,) = (one for one in list_hosts(connection) if one.name.lower() == name.lower())
        queues = {one.state.words: one.count for one in count_queues(connection) if one.host == listing.name}
    if frame.output is Format.JSON:
        click.echo(to_json({**_row(listing, frame.output), "instances": instances, "queues": queues}))
        return
    show_record({**_row(listing, frame.output), **queues}, frame.output)
    click.echo()
    columns = ["host_instance_id", "server", "pid", "started_at", "dead_since"]
    show_rows(instances, columns, frame.output, empty=f"Nobody runs it. Start it: postroom host run {listing.name}")


def _row(listing: HostListing, output: Format) -> dict[str, Any]:
    from dataclasses import asdict

    return asdict(listing) | ({"properties": listing.properties} if output is Format.TABLE else {})
