"""`postroom`: find the command, run it, and convert errors to a message and an exit code."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Sequence

import click

import postroom
from postroom.cli.command_groups import LazyCommand, LazyGroup
from postroom.cli.exit_codes import ExitCode, exit_code
from postroom.cli.options import CommandOptions, common_options, get_output, guess_output
from postroom.cli.rendering.output import show_error, show_usage_error
from postroom.errors import PostroomError

COMMANDS: dict[str, LazyCommand] = {
    "demo": LazyCommand(
        "postroom.cli.commands.deployment.demo:demo",
        "Run an example application, show where its messages arrive, and check the result.",
    ),
    "init": LazyCommand(
        "postroom.cli.commands.deployment.init:init", "Create a new application in a folder, ready to run."
    ),
    "up": LazyCommand(
        "postroom.cli.commands.deployment.up:up",
        "Deploy an application and run it until Ctrl-C: database, pipelines and hosts.",
    ),
    "plan": LazyCommand(
        "postroom.cli.commands.deployment.applications:plan", "Show what applying an application would change."
    ),
    "apply": LazyCommand(
        "postroom.cli.commands.deployment.applications:apply",
        "Deploy an application: all of it or nothing.",
    ),
    "publish": LazyCommand(
        "postroom.cli.commands.messages.publish:publish",
        "Publish each file as one message, all of them or none.",
    ),
    "explain": LazyCommand(
        "postroom.cli.commands.messages.explain:explain",
        "Show which subscribers receive a message, and why.",
    ),
    "host": LazyCommand("postroom.cli.commands.processes.hosts:host", "Run, start, stop and inspect hosts."),
    "pipeline": LazyCommand(
        "postroom.cli.commands.processes.pipeline:pipeline",
        "Run and inspect the receive locations and sinks of a host, on Spark.",
    ),
    "handler": LazyCommand("postroom.cli.commands.processes.handlers:handler", "List the adapters that hosts run."),
    "throttling": LazyCommand(
        "postroom.cli.commands.processes.throttling:throttling", "Show and override the throttling of hosts."
    ),
    "service-class": LazyCommand(
        "postroom.cli.commands.processes.service_classes:service_class", "Show and change how all hosts dequeue."
    ),
    "port": LazyCommand(
        "postroom.cli.commands.artifacts.ports:port", "List, enlist, start, stop, retry and unenlist send ports."
    ),
    "group": LazyCommand(
        "postroom.cli.commands.artifacts.groups:group", "List, enlist, start, stop and unenlist send port groups."
    ),
    "orchestration": LazyCommand(
        "postroom.cli.commands.artifacts.orchestrations:orchestration",
        "List, enlist, start, stop, unenlist and bind orchestrations.",
    ),
    "lookup": LazyCommand(
        "postroom.cli.commands.artifacts.lookups:lookup",
        "List lookups, show their entries, and load entries from a file.",
    ),
    "location": LazyCommand(
        "postroom.cli.commands.artifacts.locations:location", "List, enable, disable and schedule receive locations."
    ),
    "subscription": LazyCommand(
        "postroom.cli.commands.artifacts.subscriptions:subscription",
        "List subscriptions and test messages against them.",
    ),
    "instance": LazyCommand(
        "postroom.cli.commands.messages.instances:instance",
        "List, resume, suspend, reroute and terminate service instances.",
    ),
    "message": LazyCommand("postroom.cli.commands.messages.messages:message", "List, show and save stored messages."),
    "queue": LazyCommand("postroom.cli.commands.messages.queues:queue", "Show the queues of the hosts."),
    "jobs": LazyCommand("postroom.cli.commands.administration.jobs:jobs", "List and run the housekeeping jobs."),
    "database": LazyCommand(
        "postroom.cli.commands.processes.database:database", "Run the embedded PostgreSQL of a home folder alone."
    ),
    "check": LazyCommand(
        "postroom.cli.commands.administration.jobs:check",
        "Verify the invariants of the MessageBox and list violations.",
    ),
    "backup": LazyCommand(
        "postroom.cli.commands.administration.backup:backup",
        "Back up a running MessageBox with its claimed files to a new folder.",
    ),
    "restore": LazyCommand(
        "postroom.cli.commands.administration.backup:restore",
        "Restore a backup into a home folder without a MessageBox, or into an empty database.",
    ),
    "audit": LazyCommand(
        "postroom.cli.commands.administration.audit:audit", "List what operators have done, when and why."
    ),
    "role": LazyCommand("postroom.cli.commands.administration.roles:role", "List, grant and revoke roles."),
    "application": LazyCommand(
        "postroom.cli.commands.deployment.applications:application", "Start, stop, list and remove applications."
    ),
    "docs": LazyCommand(
        "postroom.cli.commands.administration.docs:docs",
        "List the pages of the documentation, or show one of them as Markdown.",
    ),
    "version": LazyCommand(
        "postroom.cli.commands.administration.version:version",
        "Show the versions of Postroom, Python, Spark, the embedded PostgreSQL and Java.",
    ),
}


class Postroom(LazyGroup):
    """The root of the command line."""

    lazy = COMMANDS


@click.group(cls=Postroom, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120})
@click.version_option(postroom.__version__, prog_name="postroom", message="%(prog)s %(version)s")
@common_options
def cli(_options: CommandOptions) -> None:
    """An integration server: durable publish and subscribe on Spark and PostgreSQL.

    \b
    Examples:
      postroom init orders
      postroom up orders/app.py --home ./orders-home
      postroom docs
    """


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command line and return its exit code."""
    words = sys.argv[1:] if arguments is None else arguments
    options = CommandOptions(database=os.environ.get("POSTROOM_DATABASE") or None, database_from="POSTROOM_DATABASE")
    try:
        with cli.make_context("postroom", [*words], obj=options) as context:
            try:
                cli.invoke(context)
            except PostroomError as error:
                code = exit_code(error)
                if code is ExitCode.BUG:
                    raise
                show_error(error, get_output(context))
                return code
    except click.exceptions.Exit as ended:
        return ended.exit_code
    except click.UsageError as error:
        show_usage_error(error, guess_output(words))
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("Interrupted.", err=True)
        return ExitCode.INTERRUPTED
    except BrokenPipeError:
        # The reader of the output has ended, as in `postroom … | head`. Without this, Python would fail again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.OK
    except Exception:
        traceback.print_exc()
        click.echo("This is a bug in Postroom. Please report it with the lines above.", err=True)
        return ExitCode.BUG
    return ExitCode.OK
