"""--master and --conf: where Spark runs and what it is told, for the commands that start it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def spark_options(command: Command) -> Command:
    """--master (as ``master``) and --conf (as ``settings``) for a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _settings(context: click.Context, parameter: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    settings = {}
    for one in given:
        key, equals, value = one.partition("=")
        if not equals or not key.startswith("spark."):
            raise click.BadParameter(f"{one!r} is no setting of Spark. One looks like spark.executor.memory=4g.")
        settings[key] = value
    return settings


_OPTIONS = (
    click.option(
        "--master",
        metavar="MASTER",
        envvar="POSTROOM_MASTER",
        help="Spark master, as for spark-submit.  [env: POSTROOM_MASTER; default: local[*]]",
    ),
    click.option(
        "--conf",
        "settings",
        metavar="KEY=VALUE",
        multiple=True,
        callback=_settings,
        help="Spark setting, as for spark-submit; may be repeated.",
    ),
)
