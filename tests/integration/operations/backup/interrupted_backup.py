"""A process that creates a backup, and is interrupted at a given point."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from postroom.messagebox.coordination.file_pause import FilePause
from postroom.operations.backup import create, manifest, programs, restore_backup
from postroom.operations.backup.saved_files import FileCollection
from tests.support.interrupted_process import interrupt_after, interrupt_self

#: The points at which the process is killed or frozen, and how each is patched.
POINTS: dict[str, Callable[[], None]] = {
    "during the pause": lambda: setattr(FilePause, "acquire", interrupt_after(FilePause.acquire)),
    "after the first file": lambda: setattr(FileCollection, "add", interrupt_after(FileCollection.add)),
    "at the end of the pause": lambda: setattr(FilePause, "release", interrupt_self),
    "before the dump": lambda: setattr(create, "dump_database", interrupt_self),
    "during the dump": lambda: setattr(programs, "_raise_if_failed", interrupt_self),
    "before the manifest": lambda: setattr(create, "write_manifest", interrupt_self),
    "during the manifest": lambda: setattr(manifest, "sync_folder", interrupt_self),
    "before the rename": lambda: setattr(create, "write_manifest", interrupt_after(manifest.write_manifest)),
    "after the rename": lambda: setattr(Path, "rename", interrupt_after(os.rename)),
}


def main(url: str, home: str, folder: str, point: str) -> None:
    POINTS[point]()
    create.create_backup(url, Path(home), Path(folder))


def restore(url: str, home: str, folder: str) -> None:
    """Restore a backup, and be interrupted when psql has everything except the COMMIT."""
    programs._raise_if_failed = interrupt_self
    restore_backup(url, Path(home), Path(folder), manifest.read_manifest(Path(folder)))
