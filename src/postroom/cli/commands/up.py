"""`postroom up`: deploy an application and run it."""

from __future__ import annotations

from pathlib import Path

import click

from postroom.cli.options import CommandOptions, backlog_option, common_options, pass_options, to_backlog
from postroom.cli.spark_options import spark_options


@click.command()
@click.argument("app", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@backlog_option
@spark_options
@common_options
@pass_options
def up(options: CommandOptions, app: Path, backlog: str | None, master: str | None, settings: dict[str, str]) -> None:
    """Deploy an application and run it until Ctrl-C: database, pipelines and hosts. Crashed processes are restarted.

    \b
    Example:
      postroom up examples/orders/app.py --home ./orders-home
    """
    import signal
    import threading

    from postroom.application.loading.load import load
    from postroom.operations.running.supervisor import SparkOptions
    from postroom.operations.running.up import deploy_and_supervise

    def report(what: str) -> None:
        click.echo(what, err=True)

    definition = load(app)
    home = options.home.absolute()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        # In a thread, because the handler interrupts the main thread, which may have locked the event.
        signal.signal(number, lambda *_: threading.Thread(target=stop.set, daemon=True).start())
    spark = SparkOptions(master=master, settings=settings)
    deployed = deploy_and_supervise(
        definition, home, database=options.database, spark=spark, report=report, backlog=to_backlog(backlog)
    )
    with deployed as supervisor:
        report(f"{definition.name} is running in {home}. Press Ctrl-C to stop it.")
        supervisor.run(stop)
    report("All processes have stopped.")
