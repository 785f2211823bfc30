"""`postroom`: finds the command, runs it, and turns whatever it raises into a message and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

from postroom.cli.exit_codes import ExitCode, exit_code
from postroom.cli.frame import Frame, chosen_output, frame_options
from postroom.cli.lazy import Lazy, LazyGroup
from postroom.cli.output import show_error
from postroom.errors import PostroomError

COMMANDS: dict[str, Lazy] = {
    "version": Lazy("postroom.cli.version:version", "Show the versions of Postroom and of what it runs on."),
}


class Postroom(LazyGroup):
    lazy = COMMANDS


@click.group(cls=Postroom, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@frame_options
def cli() -> None:
    """An integration server: durable publish and subscribe on Spark and PostgreSQL.

    \b
    Example:
      postroom up examples/orders/app.py --home ./orders-home
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    frame = Frame(database=os.environ.get("POSTROOM_DATABASE") or None)
    try:
        with cli.make_context("postroom", given, obj=frame) as context:
            try:
                cli.invoke(context)
            except PostroomError as error:
                show_error(error, chosen_output(context))
                return exit_code(error)
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output has gone, as in `postroom … | head`. Python must not trip over it again at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except Exception:
        traceback.print_exc()
        click.echo("This is a bug in Postroom. Please report it with the lines above.", err=True)
        return ExitCode.BUG
    return ExitCode.OK
