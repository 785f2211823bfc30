"""Add the originals of published files to an archive folder.

A file gets its name in the archive by a hard link, which never replaces another file, so that two processes that
archive files of the same name at the same time keep both. A file from another file system is copied first:

    copy under a temporary name ─► link as marker ─► link as its own name ─► remove the original ─► remove the marker

The marker is a hidden file with the interchange id in its name. It means that the copy is complete. An attempt that
finds it after a crash continues with that copy, and recognises its own file in the archive by the inode.
"""

from __future__ import annotations

import errno
import os
import shutil
from contextlib import suppress
from pathlib import Path, PurePath

from postroom.files.safe_files import (
    CHUNK_SIZE,
    link_file,
    make_folder,
    open_folder,
    open_regular_file,
    sync_folder,
    use_temporary_name,
)
from postroom.messagebox.intake.file_claims import FileClaim


def add_to_archive(claim: FileClaim, archive: Path) -> bool:
    """Add a claimed file to the archive under its own name, or with its interchange id if that name is taken.

    The original stays. The archived file is on disk when this returns, and a repeated call adds nothing. Return True if
    the file was copied from another file system: call ``remove_marker`` when the original is gone.
    """
    make_folder(archive)
    with open_regular_file(claim.path, inode=claim.inode) as file:
        os.fsync(file.fileno())
    is_linked = _link(claim.path, claim, archive)
    if not is_linked:
        _link_copy(claim, archive)
    sync_folder(archive)
    return not is_linked


def remove_marker(claim: FileClaim, archive: Path) -> None:
    """Remove the marker of a copy whose original is gone."""
    _marker(claim, archive).unlink(missing_ok=True)


def _link(file: Path, claim: FileClaim, archive: Path) -> bool:
    """Give a file its name in the archive. Return False if it has to be copied."""
    for target in (archive / claim.name, archive / _unique_name(claim)):
        try:
            return link_file(file, target)
        except FileExistsError:
            if os.path.samestat(target.lstat(), file.lstat()):
                return True  # an earlier attempt has linked it
    raise FileExistsError(errno.EEXIST, f"{target} exists already")


def _link_copy(claim: FileClaim, archive: Path) -> None:
    marker = _marker(claim, archive)
    if not marker.exists():
        with open_folder(archive) as folder, use_temporary_name(folder) as name:
            temporary = archive / name
            with open_regular_file(claim.path, inode=claim.inode) as reader, temporary.open("xb") as writer:
                shutil.copyfileobj(reader, writer, CHUNK_SIZE)
                writer.flush()
                shutil.copystat(claim.path, temporary, follow_symlinks=False)
                os.fsync(writer.fileno())
            with suppress(FileExistsError):  # another attempt has copied the same file
                if not link_file(temporary, marker):
                    # No other file has this name, so it is safe to replace it.
                    temporary.replace(archive / _unique_name(claim))
                    return
        # Another attempt may have archived and removed the original during the copy, and its marker. Then this raises
        # FileNotFoundError, before the file gets a second name.
        claim.path.lstat()
    _link(marker, claim, archive)


def _marker(claim: FileClaim, archive: Path) -> Path:
    # A name of a temporary file: if a crash leaves it behind, ``remove_leftovers`` removes it. The archived file has
    # its own name by then.
    return archive / f".postroom-{claim.interchange_id}.tmp"


def _unique_name(claim: FileClaim) -> str:
    name = PurePath(claim.name)
    # A name may have 255 bytes, 37 of which are for the id.
    stem = name.stem.encode()[:160].decode(errors="ignore")
    return f"{stem}.{claim.interchange_id}{name.suffix[:32]}"
