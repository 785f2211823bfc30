"""A process that claims and receives once, and is killed with SIGKILL at a given point."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from postroom.messagebox.configuration import receive_locations
from postroom.messagebox.connection import connect
from postroom.spark.intake import archiving, finishing
from postroom.spark.intake import claim as claims
from postroom.spark.intake.claim_folders import ClaimFolders
from postroom.spark.intake.claims import Claimer
from postroom.spark.login import Login
from postroom.spark.receive import sources
from postroom.spark.receive.sources import ClaimedFiles
from postroom.spark.receive.task import ReceiveTask
from tests.support.dying import die, then_die
from tests.support.file_systems import refuse_links_into

#: Where it dies: what is put in the place of what.
POINTS: dict[str, Callable[[], None]] = {
    "before the row": lambda: setattr(claims, "begin", die),
    "after the row": lambda: setattr(claims, "begin", then_die(claims.begin)),
    "after the first rename": lambda: setattr(os, "rename", then_die(os.rename)),
    "after the renames": lambda: setattr(ClaimFolders, "sync", die),
    "before the claim is complete": lambda: setattr(claims, "complete", die),
    "after the claim is complete": lambda: setattr(claims, "complete", then_die(claims.complete)),
    "before the publish": lambda: setattr(ReceiveTask, "_publish", die),
    "after the publish": lambda: setattr(sources, "finish", die),
    "after the first removal": lambda: setattr(Path, "unlink", then_die(Path.unlink)),
    "after the removals": lambda: setattr(claims, "forget", die),
    "after the claim is forgotten": lambda: setattr(claims, "forget", then_die(claims.forget)),
    "before the archive has the file": lambda: setattr(os, "link", die),
    "while the archive and the location have it": lambda: setattr(os, "link", then_die(os.link)),
    "before the archive is synced": lambda: setattr(archiving, "sync_folder", die),
    "after the original is removed, with a copy in the archive": lambda: setattr(finishing, "sync_folder", die),
    "while the file is copied to the archive": lambda: setattr(shutil, "copyfileobj", _copy_half_and_die),
    "after the file is copied to the archive": lambda: setattr(shutil, "copystat", then_die(shutil.copystat)),
}

#: Those that are passed only if the archive is on another file system.
COPY_POINTS = frozenset(point for point in POINTS if "cop" in point)


def _copy_half_and_die(reader: BinaryIO, writer: BinaryIO, *_: object) -> None:
    writer.write(reader.read(10))
    writer.flush()
    die()


def main(url: str, user: str, location_name: str, home: str, point: str, archive_elsewhere: str = "") -> None:
    if archive_elsewhere:
        refuse_links_into(Path(archive_elsewhere))
    with connect(url, user=user) as connection:
        [location] = [one for one in receive_locations(connection) if one.name == location_name]
        claimer = Claimer(connection, location, Path(home))
        POINTS[point]()
        claimer.scan()
        task = ReceiveTask(source=ClaimedFiles(location=location, home=Path(home)), login=Login(url=url, user=user))
        task.receive(claims.between(connection, location.location_id, 0, 1 << 60))
