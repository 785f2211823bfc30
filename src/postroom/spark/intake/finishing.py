"""What becomes of a claimed file whose messages are committed: removed, or archived; and kept if it is not the file
that was published."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path, PurePath

from postroom.adapters.file.folder import make_folder
from postroom.messagebox.connection import Connection
from postroom.spark.intake import claim as claims
from postroom.spark.intake.claim import Claim, ClaimState

#: Beside the folders of the locations, for files that somebody wrote to after they were published.
KEPT_FOLDER = "kept"

_NO_LINK = {errno.EXDEV, errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


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
    """Whether the file is as it was claimed. Raises FileNotFoundError if it is gone."""
    status = claim.path.lstat()
    return (status.st_size, status.st_mtime_ns) == (claim.size, claim.modified_ns)


def _take_away(claim: Claim, archive: Path | None) -> Path | None:
    """Returns where the file is kept if it is not what was published."""
    try:
        if not is_unchanged(claim):
            return _keep(claim)
        if archive is None:
            claim.path.unlink()
        else:
            _archive(claim, archive)
    except FileNotFoundError:
        # Dealt with before a crash, or by another attempt of the same task.
        if claim.path.exists():
            raise
    return None


def _keep(claim: Claim) -> Path:
    folder = claim.path.parent.parent / KEPT_FOLDER
    folder.mkdir(exist_ok=True)
    kept = folder / claim.path.name
    claim.path.rename(kept)
    return kept


def _archive(claim: Claim, archive: Path) -> None:
    """Under its own name, or if that is taken, with the interchange id in it. On disk before the claim is forgotten."""
    make_folder(archive)
    with claim.path.open("rb") as file:
        os.fsync(file.fileno())
    for target in (archive / claim.name, archive / _unique_name(claim)):
        try:
            _move(claim.path, target)
            break
        except FileExistsError:
            if target.samefile(claim.path):
                claim.path.unlink()  # a crash came between the new name and the end of the old one
                break
    else:
        raise FileExistsError(errno.EEXIST, f"{target} is there already")
    _sync(archive)


def _unique_name(claim: Claim) -> str:
    name = PurePath(claim.name)
    # Room for the id: a name may have 255 bytes.
    stem = name.stem.encode()[:160].decode(errors="ignore")
    return f"{stem}.{claim.interchange_id}{name.suffix[:32]}"


def _move(source: Path, target: Path) -> None:
    """To a name that must be free, which a plain rename does not ask."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINK:
            raise
        _copy(source, target)
    source.unlink()


def _copy(source: Path, target: Path) -> None:
    """To another file system, or to one without links."""
    if target.exists():
        raise FileExistsError(errno.EEXIST, f"{target} is there already")
    unfinished = target.with_name(f".postroom-{source.name[:36]}.tmp")
    try:
        with source.open("rb") as reader, unfinished.open("wb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
            writer.flush()
            os.fsync(writer.fileno())
        shutil.copystat(source, unfinished)
        unfinished.rename(target)
    finally:
        with suppress(FileNotFoundError):
            unfinished.unlink()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
