"""`postroom version`: show versions."""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of

import click

import postroom
from postroom.cli.options import CommandOptions, common_options
from postroom.cli.rendering.output import show_record
from postroom.errors import Unavailable


@click.command()
@common_options
def version(options: CommandOptions) -> None:
    """Show the versions of Postroom, Python, Spark, the embedded PostgreSQL and Java.

    \b
    Example:
      postroom version -o json
    """
    from postroom.operations.connection import embedded_version
    from postroom.spark.java import choose_java

    try:
        found = choose_java()
        java = f"{found.version} in {found.home}"
    except Unavailable as error:
        java = error.what
    versions = {
        "postroom": postroom.__version__,
        "python": platform.python_version(),
        "spark": version_of("pyspark"),
        "postgresql": embedded_version() or "not installed",
        "java": java,
    }
    show_record(versions, options.output)
