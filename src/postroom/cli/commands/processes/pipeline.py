"""`postroom pipeline`: run and show the receive locations and sinks of a host on Spark."""

from __future__ import annotations

from collections.abc import Mapping

import click

from postroom.cli.command_groups import CommandGroup
from postroom.cli.monitoring_options import MonitoringOptions, monitoring_options
from postroom.cli.options import CommandOptions, common_options
from postroom.cli.rendering.output import Format, show_paragraphs, show_rows
from postroom.cli.spark_options import spark_options


@click.group(cls=CommandGroup)
def pipeline() -> None:
    """Run and inspect the receive locations and sinks of a host, on Spark.

    \b
    Example:
      postroom pipeline run Main --home ./orders-home
    """


@pipeline.command()
@click.argument("host")
@spark_options
@click.option("--once", is_flag=True, help="Receive what is there now, write what waits for sinks, and exit.")
@click.option("--hold", is_flag=True, hidden=True, help="Start Spark, then wait for a line on the standard input.")
@monitoring_options
@common_options
def run(
    options: CommandOptions,
    host: str,
    master: str | None,
    settings: dict[str, str],
    once: bool,
    hold: bool,
    monitoring: MonitoringOptions,
) -> None:
    """Run the receive locations and sinks of a host until Ctrl-C.

    With --once the exit code is 0 if everything was published and written. It is 5 if files were quarantined, a
    location had to stop, a sink could not be written, the jar of a location or a sink is missing, or another process
    serves a location or a sink.

    \b
    Example:
      postroom pipeline run Main --home ./orders-home --once
    """
    import os
    import sys
    from contextlib import nullcontext

    from postroom.cli.rendering.once_progress import show_once_progress
    from postroom.monitoring.logs import LOG_FORMAT_VARIABLE
    from postroom.operations.hosts import check_host_to_run
    from postroom.spark.run import run_pipeline, start_session

    os.environ[LOG_FORMAT_VARIABLE] = monitoring.log_format  # for the workers of Spark on this machine
    with monitoring.start() as server:
        started = None
        if hold:
            # 'postroom up' deploys meanwhile. The end of the input without a line is the end of 'up'.
            monitoring.report(f"Starting Spark for the receive locations and sinks of {host}.")
            started = start_session(options.home.absolute(), host, master=master, settings=settings)
            if not sys.stdin.readline():
                return
        with options.messagebox() as url:
            host = check_host_to_run(url, host)
            if not hold:
                text = f"Starting Spark for the receive locations and sinks of {host}. Press Ctrl-C to stop it."
                monitoring.report(text)
            with show_once_progress() if once else nullcontext() as watcher:
                counts = run_pipeline(
                    url,
                    host,
                    options.home.absolute(),
                    master=master,
                    settings=settings,
                    once=once,
                    as_role=options.database is None,
                    watcher=watcher,
                    started=started,
                    monitoring=server,
                )
            monitoring.report(f"The receive locations and sinks of {host} have stopped: {_format_counts(counts)}.")


def _format_counts(counts: Mapping[str, int]) -> str:
    labels = {"published": "published", "suspended": "suspended", "routed": "routed as failures", "written": "written"}
    texts = [f"{counts[name]:,} {label}" for name, label in labels.items() if counts.get(name)]
    return "messages " + ", ".join(texts) if texts else "no messages"


@pipeline.command()
@common_options
def show(options: CommandOptions) -> None:
    """Show the state, backlog and rate of each receive location and sink, and what slows it down.

    \b
    Example:
      postroom pipeline show --home ./orders-home
    """
    from postroom.cli.connection import open_messagebox
    from postroom.operations.ports.receive_locations import list_locations
    from postroom.operations.ports.sinks import list_sinks
    from postroom.operations.records import to_row

    with open_messagebox(options) as connection:
        located, sunk = list_locations(connection), list_sinks(connection)
    if options.output is Format.JSON:
        locations = [{"kind": "receive location", **to_row(row)} for row in located]
        for row in locations:
            del row["opens"]
        show_rows([*locations, *({"kind": "sink", **to_row(row)} for row in sunk)], [], options.output)
        return
    columns = ["location", "host", "state", "waiting", "oldest", "published", "rate", "suspended"]
    show_rows(located, columns, options.output, empty="No receive locations.")
    reasons = [(row.location, f"{row.state}: {row.reason}") for row in located if row.reason]
    show_paragraphs(reasons + [(row.location, problem) for row in located for problem in row.problems], options.output)
    if sunk:
        click.echo()
        columns = ["sink", "host", "state", "waiting", "retrying", "last_batch_at", "written", "rate", "suspended"]
        show_rows(sunk, columns, options.output)
        show_paragraphs([(row.sink, f"{row.state}: {row.reason}") for row in sunk if row.reason], options.output)
