"""The options --master and --conf of the commands that start Spark."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

Command = TypeVar("Command", bound=Callable[..., Any])


def spark_options(command: Command) -> Command:
    """Add --master (as ``master``) and --conf (as ``settings``) to a command."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def _parse_settings(context: click.Context, parameter: click.Parameter, values: Sequence[str]) -> dict[str, str]:
    settings = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key.startswith("spark."):
            raise click.BadParameter(f"{text!r} is not a Spark setting. Example: spark.executor.memory=4g.")
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
        callback=_parse_settings,
        help="Spark setting, as for spark-submit; may be repeated.",
    ),
)
