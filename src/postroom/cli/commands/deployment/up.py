"""`postroom up`: deploy an application and run it."""

from __future__ import annotations

from pathlib import Path

import click

from postroom.cli.connection import describe_stopped_server
from postroom.cli.monitoring_options import MonitoringOptions, monitoring_options
from postroom.cli.options import CommandOptions, allow_incompatible_option, backlog_option, common_options, to_backlog
from postroom.cli.spark_options import spark_options


@click.command()
@click.argument("app", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@backlog_option
@allow_incompatible_option
@spark_options
@monitoring_options
@common_options
def up(
    options: CommandOptions,
    app: Path,
    backlog: str | None,
    allow_incompatible: bool,
    master: str | None,
    settings: dict[str, str],
    monitoring: MonitoringOptions,
) -> None:
    """Deploy an application and run it until Ctrl-C: database, pipelines and hosts. Crashed processes are restarted.

    \b
    Example:
      postroom up app.py --home ./orders-home
    """
    import logging
    import threading
    from functools import partial

    from postroom.application.loading.load import load
    from postroom.monitoring.logs import LogFormat
    from postroom.processes.stop_signals import set_on_stop_signals
    from postroom.up.deploy_and_supervise import deploy_and_supervise
    from postroom.up.metrics import SupervisorMetrics
    from postroom.up.supervisor import MonitoringSettings, SparkOptions

    definition = load(app)
    home = options.home.absolute()
    stop = threading.Event()
    report = monitoring.report_event
    with monitoring.start(is_quiet=True) as server:
        deployed = deploy_and_supervise(
            definition,
            home,
            database=options.database,
            spark=SparkOptions(master=master, settings=settings),
            report=report,
            report_problem=partial(report, level=logging.WARNING),
            backlog=to_backlog(backlog),
            allow_incompatible=allow_incompatible,
            monitoring=MonitoringSettings(
                metrics_port=monitoring.metrics_port,
                metrics_listen=monitoring.metrics_listen,
                log_format=LogFormat(monitoring.log_format),
            ),
        )
        with set_on_stop_signals(stop), deployed as supervisor:
            if server is not None:
                metrics = SupervisorMetrics(supervisor, monitoring.metrics_listen)
                server.process, server.list_targets = metrics, metrics.list_targets
            report(f"{definition.name} is running in {home}. Press Ctrl-C to stop it.")
            supervisor.run(stop)
        report(f"Pipelines and hosts have stopped. {describe_stopped_server(options)}".rstrip())
