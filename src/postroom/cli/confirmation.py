"""Ask for confirmation before a change that cannot be undone."""

from __future__ import annotations

import sys

import click

from postroom.cli.exit_codes import ExitCode


def confirm(question: str, *, refused: str) -> None:
    """Ask a question on standard error. Write ``refused`` and exit with an error unless the answer is yes."""
    try:
        if click.confirm(question, err=True):
            return
    except click.Abort:
        if sys.stdin.isatty():
            raise  # Ctrl-C
        click.echo(err=True)  # standard input is closed
    click.echo(f"{refused} Use --yes to skip the confirmation.", err=True)
    raise click.exceptions.Exit(ExitCode.FAILED)
