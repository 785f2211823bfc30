"""Finish claimed files: after its messages are committed a file is removed or archived. A file that was written to
after it was published is not removed. It is moved to the folder ``kept``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from postroom.files.safe_files import sync_folder
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.file_pause import lock_files_in_transaction
from postroom.messagebox.intake import file_claims
from postroom.messagebox.intake.file_claims import FileClaim, FileClaimState
from postroom.receiving.files.archiving import add_to_archive, remove_marker
from postroom.receiving.files.watched_folder import FileStatus

#: The folder next to the private folders of the locations, for files that were written to after they were published.
KEPT_FOLDER = "kept"


def finish_files(connection: Connection, published: Sequence[FileClaim], archive: Path | None) -> list[str]:
    """Remove or archive published files and delete their claims. Return the problems. The claims of files with a
    problem stay.

    This can be repeated after a crash at any point, because a missing file has been finished before. While a backup
    copies the files, the claims are only marked as published. The next scan of the location finishes them.
    """
    with connection.transaction():
        if lock_files_in_transaction(connection):
            return _finish(connection, published, archive)
        file_claims.mark_published(connection, [claim.interchange_id for claim in published])
        return []


def _finish(connection: Connection, published: Sequence[FileClaim], archive: Path | None) -> list[str]:
    done, problems = [], []
    for claim in published:
        try:
            kept = _remove_or_keep(claim, archive)
        except OSError as error:
            problem = f"{claim.path} is published but cannot be removed: {error.strerror or error}."
            file_claims.store_problem(connection, claim, FileClaimState.PUBLISHED, problem)
            problems.append(problem)
            continue
        if kept is None:
            done.append(claim.interchange_id)
        else:
            problem = f"{claim.name} was written to after it was published. The changed file is kept as {kept}."
            file_claims.store_problem(connection, replace(claim, path=kept), FileClaimState.PUBLISHED, problem)
            problems.append(problem)
    if done:
        file_claims.delete_file_claims(connection, done)
    return problems


def is_unchanged(claim: FileClaim) -> bool:
    """Return True if the file has not changed since it was claimed. Raise FileNotFoundError if it is gone."""
    status = FileStatus.from_stat(claim.path.lstat())
    return (
        status.is_regular
        and (status.size, status.modified_ns) == (claim.size, claim.modified_ns)
        and claim.inode in (None, status.inode)
    )


def _remove_or_keep(claim: FileClaim, archive: Path | None) -> Path | None:
    """Remove or archive a file. If it has changed, move it and return its new path."""
    try:
        if not is_unchanged(claim):
            return _keep(claim)
        if archive is None:
            claim.path.unlink()
            return None
        copied = add_to_archive(claim, archive)
        kept = None
        if is_unchanged(claim):
            claim.path.unlink()
        else:
            kept = _keep(claim)  # the copy may lack what was written during the copy
        if copied:
            # A crash of the machine must not restore the original without the marker: it would be archived again.
            sync_folder(claim.path.parent)
            remove_marker(claim, archive)
        return kept
    except FileNotFoundError:
        # It was finished before a crash, or by another attempt of the same task.
        if claim.path.exists():
            raise
        if archive is not None:
            remove_marker(claim, archive)
    return None


def _keep(claim: FileClaim) -> Path:
    folder = claim.path.parent.parent / KEPT_FOLDER
    folder.mkdir(0o700, exist_ok=True)
    kept = folder / claim.path.name
    claim.path.rename(kept)
    return kept
