"""What becomes of a claimed file whose messages are committed: removed, or archived; and kept if it is not the file
that was published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from postroom.adapters.file.folder import sync_folder
from postroom.messagebox.connection import Connection
from postroom.spark.intake import claim as claims
from postroom.spark.intake.archiving import add_to_archive, remove_marker
from postroom.spark.intake.claim import Claim, ClaimState
from postroom.spark.intake.settling import Look

#: Beside the folders of the locations, for files that somebody wrote to after they were published.
KEPT_FOLDER = "kept"


def finish(connection: Connection, published: Sequence[Claim], archive: Path | None) -> list[str]:
    """Takes published files away and forgets their claims. Returns what went wrong, in words; those claims stay.

    Safe to repeat after a crash at any point: a file that is gone has been dealt with.
    """
    done, problems = [], []
    for claim in published:
        try:
            kept = _take_away(claim, archive)
        except OSError as error:
            problem = f"{claim.path} is published but cannot be taken away: {error.strerror or error}."
            claims.hold(connection, claim, ClaimState.PUBLISHED, problem)
            problems.append(problem)
            continue
        if kept is None:
            done.append(claim.interchange_id)
        else:
            problem = f"{claim.name} was written to after it was published. What it has become is kept as {kept}."
            claims.hold(connection, replace(claim, path=kept), ClaimState.PUBLISHED, problem)
            problems.append(problem)
    if done:
        claims.forget(connection, done)
    return problems


def is_unchanged(claim: Claim) -> bool:
    """Return True if this is the claimed file, as it was claimed. Raises FileNotFoundError if it is gone."""
    look = Look.of(claim.path.lstat())
    return (
        look.is_regular
        and (look.size, look.modified_ns) == (claim.size, claim.modified_ns)
        and claim.inode in (None, look.inode)
    )


def _take_away(claim: Claim, archive: Path | None) -> Path | None:
    """Returns where the file is kept if it is not what was published."""
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
            kept = _keep(claim)  # a copy may lack what was written during the copy
        if copied:
            # A machine that crashes must not bring the original back without the marker: it would be archived again.
            sync_folder(claim.path.parent)
            remove_marker(claim, archive)
        return kept
    except FileNotFoundError:
        # Dealt with before a crash, or by another attempt of the same task.
        if claim.path.exists():
            raise
        if archive is not None:
            remove_marker(claim, archive)
    return None


def _keep(claim: Claim) -> Path:
    folder = claim.path.parent.parent / KEPT_FOLDER
    folder.mkdir(0o700, exist_ok=True)
    kept = folder / claim.path.name
    claim.path.rename(kept)
    return kept
