"""`postroom up`: deploy an application and run it."""

from __future__ import annotations

from pathlib import Path

import click

from postroom.cli.connection import describe_stopped_server
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
    import threading

    from postroom.application.loading.load import load
    from postroom.operations.running.supervisor import SparkOptions
    from postroom.operations.running.up import deploy_and_supervise
    from postroom.stop_signals import set_on_stop_signals

    def report(what: str) -> None:
        click.echo(what, err=True)

    definition = load(app)
    home = options.home.absolute()
    stop = threading.Event()
    spark = SparkOptions(master=master, settings=settings)
    deployed = deploy_and_supervise(
        definition, home, database=options.database, spark=spark, report=report, backlog=to_backlog(backlog)
    )
    with set_on_stop_signals(stop), deployed as supervisor:
        report(f"{definition.name} is running in {home}. Press Ctrl-C to stop it.")
        supervisor.run(stop)
    report(f"Pipelines and hosts have stopped. {describe_stopped_server(options)}".rstrip())
