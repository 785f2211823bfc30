"""The options --metrics-port, --metrics-listen and --log-format of the commands that run processes."""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click

from postroom.monitoring.logs import LOG_FORMAT_VARIABLE, LogFormat, set_up_logging

if TYPE_CHECKING:
    from postroom.monitoring.server import MonitoringServer

#: What a command reports is logged under the name of the program, not of this module.
_log = logging.getLogger("postroom")


@dataclass(frozen=True, kw_only=True)
class MonitoringOptions:
    """The values of the options."""

    metrics_port: int | None
    metrics_listen: str
    log_format: str

    @contextmanager
    def start(self, *, is_quiet: bool = False) -> Iterator[MonitoringServer | None]:
        """Set up the log, and listen for monitoring if a port is given. With ``is_quiet`` a log of text has only
        warnings."""
        is_text = self.log_format == "text"
        set_up_logging(LogFormat(self.log_format), logging.WARNING if is_quiet and is_text else logging.INFO)
        if self.metrics_port is None:
            yield None
            return
        from postroom.monitoring.server import MonitoringServer

        with MonitoringServer(self.metrics_listen, self.metrics_port) as server:
            address = f"[{self.metrics_listen}]" if ":" in self.metrics_listen else self.metrics_listen
            self.report_event(f"Metrics: http://{address}:{server.port}/metrics")
            yield server

    def report(self, text: str) -> None:
        """Show a text to the user, or log it if the log is read by a program."""
        if self.log_format == "json":
            _log.info("%s", text)
        else:
            click.echo(text)

    def report_event(self, text: str, level: int = logging.INFO) -> None:
        """Show what has happened, with the time. A log for programs has the level too."""
        if self.log_format == "json":
            _log.log(level, "%s", text)
        else:
            click.echo(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}", err=True)


def monitoring_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options to a command, which gets them as ``monitoring``."""

    @functools.wraps(command)
    def run(*arguments: Any, metrics_port: int | None, metrics_listen: str, log_format: str, **others: Any) -> Any:
        options = MonitoringOptions(metrics_port=metrics_port, metrics_listen=metrics_listen, log_format=log_format)
        return command(*arguments, monitoring=options, **others)

    for option in reversed(_OPTIONS):
        run = option(run)
    return run


_OPTIONS = (
    click.option(
        "--metrics-port",
        type=click.IntRange(1, 65535),
        metavar="PORT",
        help="Answer /metrics, /livez and /readyz on this port.  [default: no port]",
    ),
    click.option(
        "--metrics-listen",
        default="127.0.0.1",
        metavar="ADDRESS",
        help="Address of the metrics port.  [default: 127.0.0.1, only this machine]",
    ),
    click.option(
        "--log-format",
        type=click.Choice(["text", "json"]),
        default="text",
        envvar=LOG_FORMAT_VARIABLE,
        help=f"Format of the log.  [env: {LOG_FORMAT_VARIABLE}; default: text]",
    ),
)
