"""A process that claims and receives once, and is interrupted at a given point."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from postroom.messagebox.connection import Login, connect
from postroom.messagebox.intake import file_claims
from postroom.ports.receive_locations import read_receive_locations
from postroom.receiving.files import archiving, claimed_files, file_receive_adapter
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.receiving.files.watched_folder import ClaimFolders
from postroom.receiving.task import ReceiveTask
from postroom.spark.receive.task import SparkReceiveTask
from tests.support.file_location import read_numbered_claims
from tests.support.file_systems import refuse_links_into
from tests.support.interrupted_process import interrupt_after, interrupt_self

#: The points at which the process is killed or frozen, and how each is patched.
POINTS: dict[str, Callable[[], None]] = {
    "before the row": lambda: setattr(file_claims, "insert_file_claims", interrupt_self),
    "after the row": lambda: setattr(
        file_claims, "insert_file_claims", interrupt_after(file_claims.insert_file_claims)
    ),
    "after the first rename": lambda: setattr(os, "rename", interrupt_after(os.rename)),
    "after the renames": lambda: setattr(ClaimFolders, "sync", interrupt_self),
    "before the claim is complete": lambda: setattr(file_claims, "number_claims", interrupt_self),
    "after the claim is complete": lambda: setattr(
        file_claims, "number_claims", interrupt_after(file_claims.number_claims)
    ),
    "before the publish": lambda: setattr(ReceiveTask, "_publish", interrupt_self),
    "after the publish": lambda: setattr(file_receive_adapter, "finish_files", interrupt_self),
    "after the first removal": lambda: setattr(Path, "unlink", interrupt_after(Path.unlink)),
    "after the removals": lambda: setattr(file_claims, "delete_file_claims", interrupt_self),
    "after the claim is deleted": lambda: setattr(
        file_claims, "delete_file_claims", interrupt_after(file_claims.delete_file_claims)
    ),
    "before the archive has the file": lambda: setattr(os, "link", interrupt_self),
    "while the archive and the location have it": lambda: setattr(os, "link", interrupt_after(os.link)),
    "before the archive is synced": lambda: setattr(archiving, "sync_folder", interrupt_self),
    "after the original of a copy in the archive is removed": lambda: setattr(
        claimed_files, "sync_folder", interrupt_self
    ),
    "while the file is copied to the archive": lambda: setattr(shutil, "copyfileobj", _copy_half_and_interrupt),
    "after the file is copied to the archive": lambda: setattr(shutil, "copystat", interrupt_after(shutil.copystat)),
}

#: The points that are passed only if the archive is on another file system.
COPY_POINTS = frozenset(point for point in POINTS if "cop" in point)


def _copy_half_and_interrupt(reader: BinaryIO, writer: BinaryIO, *_: object) -> None:
    writer.write(reader.read(10))
    writer.flush()
    interrupt_self()


def main(url: str, user: str, location_name: str, home: str, point: str, foreign_archive: str = "") -> None:
    if foreign_archive:
        refuse_links_into(Path(foreign_archive))
    with connect(url, user=user) as connection:
        [location] = [found for found in read_receive_locations(connection) if found.name == location_name]
        claimer = FileClaimer(connection, location, Path(home))
        POINTS[point]()
        claimer.scan()
        task = SparkReceiveTask(location=location, home=Path(home), login=Login(url=url, user=user))
        task.receive(read_numbered_claims(connection, location))
