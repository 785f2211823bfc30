"""`postroom host run`: a host instance, as a process that works until it is told to stop."""

from __future__ import annotations

import click

from postroom.cli.options import CommandOptions, common_options, pass_options


@click.command("run")
@click.argument("name")
@common_options
@pass_options
def run(options: CommandOptions, name: str) -> None:
    """Run an instance of a host until Ctrl-C. Several of them, on one machine or on many, share its work.

    \b
    Example:
      postroom host run Main --home ./orders-home
    """
    import logging

    from postroom.hosts import run_host
    from postroom.messagebox.configuration import host_named
    from postroom.messagebox.connection import connect
    from postroom.messagebox.permission import require_host

    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    with options.messagebox() as url:
        with connect(url) as connection:
            host = host_named(connection, name)
            require_host(connection, host)
        name = host.name
        click.echo(f"Host {name} works; Ctrl-C ends it.")
        # On a server of one's own the URL says who logs in; the embedded one trusts everybody on the machine.
        instance = run_host(url, name, options.home.absolute(), as_role=options.database is None)
        counts = ", ".join(f"{what} {count}" for what, count in sorted(instance.counts.items()))
        click.echo(f"Host {name} has ended: {counts or 'nothing to do'}.")
