"""The manifest of a backup: its content with sizes and checksums. A folder without a manifest is not a backup.

DIR/manifest.json         this file, written last
DIR/messagebox.dump       the database, in the custom format of pg_dump
DIR/files/claimed/…       claimed files that are not published yet
DIR/files/streams/…       the checkpoints of streams
DIR/files/archives/…      the archives of receive locations, if requested
DIR/files/included/…      other files, if requested
"""

from __future__ import annotations

import hashlib
import os
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from postroom.errors import NotFound, StateError
from postroom.files.safe_files import sync_folder

MANIFEST = "manifest.json"
DUMP = "messagebox.dump"
FORMAT = 1


SavedFileKind = Literal["claimed", "streams", "archives", "included"]
#: Writes a line of progress.
Report = Callable[[str], None]


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class SavedFile(_Entry):
    """A file of a backup, and where it came from."""

    kind: SavedFileKind
    name: str
    """The path in the backup."""
    path: str
    """The absolute path of the original."""
    home_path: str | None = None
    """The path relative to the home folder, if the original is inside of it."""
    size: int
    sha256: str
    mode: int
    modified_ns: int
    interchange_id: uuid.UUID | None = None
    """The interchange id of a claimed file."""

    def find_target(self, home: Path) -> Path:
        """Return where the file belongs when it is restored with this home folder."""
        return Path(self.path) if self.home_path is None else home / self.home_path


class SavedRole(_Entry):
    """A role of the MessageBox, and the roles and logins that are members of it."""

    name: str
    can_login: bool
    members: tuple[str, ...]


class Manifest(_Entry):
    """The content of a backup."""

    format: int
    postroom: str
    created_at: datetime
    messagebox_id: str
    home: str
    applications: tuple[str, ...]
    dump_size: int
    dump_sha256: str
    roles: tuple[SavedRole, ...]
    files: tuple[SavedFile, ...]

    def count(self, kind: SavedFileKind) -> int:
        return sum(file.kind == kind for file in self.files)


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the manifest. It is on disk when this returns."""
    with (folder / MANIFEST).open("x", encoding="utf-8") as writer:
        writer.write(manifest.model_dump_json(indent=2) + "\n")
        writer.flush()
        os.fsync(writer.fileno())
    sync_folder(folder)


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of a backup. Raise NotFound if the folder is not a complete backup."""
    try:
        text = (folder / MANIFEST).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(
            f"There is no backup in {folder}.",
            why=f"It has no {MANIFEST}, which a backup writes last.",
            hint="Give the folder of a complete backup.",
        ) from None
    try:
        manifest = Manifest.model_validate_json(text)
    except ValidationError as error:
        raise _damage_error(folder, f"{MANIFEST} cannot be read: {error.errors()[0]['msg']}.") from None
    if manifest.format != FORMAT:
        raise StateError(
            f"The backup in {folder} has format {manifest.format}; this Postroom reads format {FORMAT}.",
            hint=f"Restore it with Postroom {manifest.postroom}.",
        )
    return manifest


def verify_backup(folder: Path, manifest: Manifest) -> None:
    """Raise StateError if a file of the backup is missing or was changed."""
    expected = {DUMP: (manifest.dump_size, manifest.dump_sha256)}
    expected |= {file.name: (file.size, file.sha256) for file in manifest.files}
    for name, (size, sha256) in expected.items():
        path = folder / name
        if not path.resolve().is_relative_to(folder.resolve()):
            raise _damage_error(folder, f"{name} is outside of the backup.")
        try:
            is_same = path.stat().st_size == size and compute_sha256(path) == sha256
        except FileNotFoundError:
            raise _damage_error(folder, f"{name} is missing.") from None
        if not is_same:
            raise _damage_error(folder, f"{name} has changed since the backup.")


def compute_sha256(path: Path) -> str:
    with path.open("rb") as reader:
        return hashlib.file_digest(reader, "sha256").hexdigest()


def _damage_error(folder: Path, why: str) -> StateError:
    return StateError(f"The backup in {folder} is damaged.", why=why, hint="Use another backup. Nothing was restored.")
