"""Copy files into a backup, and out of it."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from postroom.errors import StateError
from postroom.files.safe_files import (
    CHUNK_SIZE,
    link_file,
    make_folder,
    open_folder,
    open_regular_file,
    sync_folder,
    use_temporary_name,
)
from postroom.operations.backup.manifest import SavedFile, SavedFileKind, compute_sha256


@dataclass(kw_only=True)
class FileCollection:
    """The files of a new backup in ``folder``.

    ``add`` copies a file. With ``may_link`` it makes a hard link if possible, which is faster. ``finish`` replaces the
    links by copies, so that no change of the original changes the backup, and computes the checksums.
    """

    folder: Path
    home: Path
    _collected: list[tuple[SavedFileKind, str, Path, uuid.UUID | None]] = field(default_factory=list)

    def add(
        self,
        kind: SavedFileKind,
        name: str,
        source: Path,
        *,
        inode: int | None = None,
        interchange_id: uuid.UUID | None = None,
        may_link: bool = False,
    ) -> None:
        """Collect a file. Raise FileNotFoundError if it is gone."""
        target = self.folder / "files" / kind / name
        target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with open_regular_file(source, inode=inode) as reader:
            is_linked = may_link and link_file(source, target)
            if not is_linked:
                with os.fdopen(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as writer:
                    shutil.copyfileobj(reader, writer, CHUNK_SIZE)
                shutil.copystat(source, target, follow_symlinks=False)
        self._collected.append((kind, f"files/{kind}/{name}", source.absolute(), interchange_id))

    def add_tree(self, kind: SavedFileKind, name: str, source: Path) -> None:
        """Collect all regular files below a folder. A file that is deleted meanwhile is left out."""
        for path in _list_files(source):
            with suppress(FileNotFoundError):
                self.add(kind, str(Path(name, path.relative_to(source))), path)

    def finish(self) -> Iterator[SavedFile]:
        """Make each file independent of its original. Yield them with their checksums."""
        for kind, name, source, interchange_id in self._collected:
            path = self.folder / name
            if path.stat().st_nlink > 1:
                copy = path.with_name(f".{uuid.uuid4()}")
                shutil.copy2(path, copy)
                copy.replace(path)
            with path.open("rb") as reader:
                os.fsync(reader.fileno())
            status = path.stat()
            yield SavedFile(
                kind=kind,
                name=name,
                path=str(source),
                home_path=str(source.relative_to(self.home)) if source.is_relative_to(self.home) else None,
                size=status.st_size,
                sha256=compute_sha256(path),
                mode=status.st_mode & 0o7777,
                modified_ns=status.st_mtime_ns,
                interchange_id=interchange_id,
            )
        for folder, _, _ in os.walk(self.folder):
            sync_folder(Path(folder))


def restore_file(backup: Path, file: SavedFile, home: Path, *, overwrite: bool = False) -> Path:
    """Copy a file out of the backup to where it belongs. Return its path. It is on disk when this returns.

    An existing file with the same content is kept. Raise StateError if its content differs, unless ``overwrite``.
    """
    target = file.find_target(home)
    make_folder(target.parent, mode=0o700 if file.kind == "claimed" else 0o777)
    if not overwrite and os.path.lexists(target):
        if target.is_file() and not target.is_symlink() and compute_sha256(target) == file.sha256:
            if file.kind == "claimed":
                os.utime(target, ns=(file.modified_ns, file.modified_ns))
            return target
        raise StateError(
            f"{target} exists, and its content differs from the file in the backup.",
            hint="Move it to another folder and restore again. Nothing was restored to the database.",
        )
    with open_folder(target.parent) as folder, use_temporary_name(folder) as name:
        temporary = target.parent / name
        with (backup / file.name).open("rb") as reader, temporary.open("xb") as writer:
            shutil.copyfileobj(reader, writer, CHUNK_SIZE)
            writer.flush()
            os.fchmod(writer.fileno(), file.mode)
            os.fsync(writer.fileno())
        os.utime(temporary, ns=(file.modified_ns, file.modified_ns))
        temporary.replace(target)
        os.fsync(folder)
    return target


def _list_files(folder: Path) -> Iterator[Path]:
    """Yield the regular files below a folder. The offsets of a stream come before its commits: a batch is committed
    after its offsets are written, so a copy never has the commit of a batch without its offsets."""
    for parent, folders, names in os.walk(folder):
        folders.sort(reverse=True)
        for name in sorted(names):
            path = Path(parent, name)
            if path.is_file() and not path.is_symlink():
                yield path
