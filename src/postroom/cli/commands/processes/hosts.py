"""`postroom host`: hosts and host instances."""

from __future__ import annotations

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.connection import open_messagebox
from postroom.cli.list_commands import add_list_command
from postroom.cli.monitoring_options import MonitoringOptions, monitoring_options
from postroom.cli.options import CommandOptions, change_options, common_options
from postroom.cli.rendering.output import Format, show_record


@click.group(cls=CommandGroup)
def host() -> None:
    """Run, start, stop and inspect hosts.

    \b
    Example:
      postroom host run Main --home ./orders-home
    """


@host.command()
@click.argument("name")
@monitoring_options
@common_options
def run(options: CommandOptions, name: str, monitoring: MonitoringOptions) -> None:
    """Run an instance of a host until Ctrl-C. Several instances, on one or more machines, share the work.

    \b
    Example:
      postroom host run Main --home ./orders-home
    """
    from postroom.hosts import run_host
    from postroom.operations.hosts import check_host_to_run

    with monitoring.start() as server, options.messagebox() as url:
        name = check_host_to_run(url, name)
        monitoring.report(f"Host {name} is running. Press Ctrl-C to stop it.")
        # The URL of an external server names the login. The embedded server trusts every local user.
        instance = run_host(url, name, options.home.absolute(), as_role=options.database is None, monitoring=server)
        counts = ", ".join(f"{what} {count}" for what, count in sorted(instance.counts.items()))
        monitoring.report(f"Host {name} has stopped: {counts or 'nothing to do'}.")


add_list_command(
    host,
    "postroom.operations.hosts:list_hosts",
    "name is_default trusted isolated stopped threads running_instances locations send_ports properties",
    help="List the hosts, with the number of running processes of each.",
    example="Example:\n  postroom host list -o json",
    empty="No hosts. Apply an application: postroom apply APP",
)


@host.command()
@click.argument("name")
@common_options
def show(options: CommandOptions, name: str) -> None:
    """Show a host: its trust, application properties, running processes and queues.

    \b
    Example:
      postroom host show Main
    """
    from postroom.operations.hosts import get_host_details
    from postroom.operations.records import to_row

    with open_messagebox(options) as connection:
        found = get_host_details(connection, name)
    if options.output is Format.TABLE:
        row = to_row(found)
        queues = row.pop("queues")
        columns = ["host_instance_id", "server", "pid", "started_at", "dead_since"]
        empty = f"Not running. Start it: postroom host run {found.name}"
        show_record(row | queues, options.output, tables={"instances": columns}, empty=empty)
        return
    show_record(found, options.output)


@host.command()
@click.argument("name")
@change_options
def add(options: CommandOptions, name: str) -> None:
    """Create a host. 'postroom apply' creates the hosts that an application declares, so this is rarely needed.

    \b
    Example:
      postroom host add Slow
    """
    from postroom.operations.hosts import add_host

    with open_messagebox(options) as connection:
        add_host(connection, name)
    show_record({"name": name, "state": "added"}, options.output)


@host.command()
@click.argument("name")
@change_options
def remove(options: CommandOptions, name: str) -> None:
    """Remove a host that has no ports, locations, queued messages and processes any more.

    \b
    Example:
      postroom host remove Slow
    """
    from postroom.operations.hosts import delete_host

    with open_messagebox(options) as connection:
        delete_host(connection, name)
    show_record({"name": name, "state": "removed"}, options.output)


@host.command()
@click.argument("name")
@change_options
def stop(options: CommandOptions, name: str) -> None:
    """Stop a host: its processes finish what they are working on, and neither receive nor send until it is started.

    The processes keep running. Messages wait in the queue of the host.

    \b
    Example:
      postroom host stop Main
    """
    from postroom.operations.hosts import set_stopped

    with open_messagebox(options) as connection:
        set_stopped(connection, name, stopped=True)
    show_record({"name": name, "state": "stopped"}, options.output)


@host.command()
@click.argument("name")
@change_options
def start(options: CommandOptions, name: str) -> None:
    """Start a host that was stopped with 'postroom host stop'.

    \b
    Example:
      postroom host start Main
    """
    from postroom.operations.hosts import set_stopped

    with open_messagebox(options) as connection:
        set_stopped(connection, name, stopped=False)
    show_record({"name": name, "state": "started"}, options.output)
