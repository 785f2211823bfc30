"""`postroom backup` and `postroom restore`."""

from __future__ import annotations

from pathlib import Path

import click

from postroom.cli.connection import open_messagebox
from postroom.cli.options import CommandOptions, change_options, common_options
from postroom.cli.rendering.output import show_record


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--archives", is_flag=True, help="Add the archive folders of the receive locations.")
@click.option(
    "--include",
    type=click.Path(exists=True, path_type=Path),
    metavar="PATH",
    multiple=True,
    help="Add a file or a folder, such as the file of the application; may be repeated.",
)
@common_options
def backup(options: CommandOptions, folder: Path, archives: bool, include: tuple[Path, ...]) -> None:
    """Back up a running MessageBox with its claimed files to a new folder.

    Publishing and delivery continue. No new file is claimed while the claimed files are copied. The folder appears when
    the backup is complete.

    \b
    Example:
      postroom backup /var/backups/orders-2026-11-16 --include app.py
    """
    from postroom.operations.backup import create_backup

    # The connection checks that there is a MessageBox of this version.
    with open_messagebox(options), options.messagebox() as url:
        report = create_backup(
            url,
            options.home,
            folder,
            archives=archives,
            include=include,
            report=lambda line: click.echo(line, err=True),
        )
    show_record(report, options.output)


@click.command()
@click.argument("folder", metavar="DIR", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--stopped", is_flag=True, help="Stop all hosts of the restored MessageBox: a copy beside its original.")
@change_options
def restore(options: CommandOptions, folder: Path, stopped: bool) -> None:
    """Restore a backup into a home folder without a MessageBox, or into an empty database.

    The backup is verified first. Messages that were delivered after the backup are delivered again. If the original
    still runs, use --stopped: the hosts of the copy neither receive nor send until they are started.

    \b
    Examples:
      postroom restore /var/backups/orders-2026-11-16 --home ./orders-home
      postroom restore /var/backups/orders-2026-11-16 --home ./copy --stopped
    """
    from postroom.operations.backup import read_manifest, restore_backup
    from postroom.operations.backup.manifest import verify_backup
    from postroom.up.deploy_and_supervise import lock_home

    def report(line: str) -> None:
        click.echo(line, err=True)

    folder = folder.absolute()
    manifest = read_manifest(folder)
    home = options.home.absolute()
    hint = "Use another --home. To replace this MessageBox, stop that process (Ctrl-C) and move the folder away."
    with lock_home(home, hint=hint):
        report("Verifying the backup")
        verify_backup(folder, manifest)
        with options.messagebox(create=True) as url:
            result = restore_backup(url, home, folder, manifest, stopped=stopped, reason=options.reason, report=report)
    show_record(result, options.output)
    for login in result.missing_logins:
        report(f"The login {login} does not exist on this server. Create it, and grant its roles: postroom role grant.")
