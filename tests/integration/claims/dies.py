"""A process that claims and receives once, and is killed with -9 at the point that it is told."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from postroom.messagebox.configuration import receive_locations
from postroom.messagebox.connection import connect
from postroom.spark.intake import claim as claims
from postroom.spark.intake import claims as claiming
from postroom.spark.intake import finishing
from postroom.spark.intake.claims import Claimer
from postroom.spark.login import Login
from postroom.spark.receive import task as receive_task
from postroom.spark.receive.task import ReceiveTask
from tests.support.dying import die, then_die

#: Where it dies: what is put in the place of what.
POINTS: dict[str, Callable[[], None]] = {
    "before the row": lambda: setattr(claims, "begin", die),
    "after the row": lambda: setattr(claims, "begin", then_die(claims.begin)),
    "after the first rename": lambda: setattr(Path, "rename", then_die(Path.rename)),
    "after the renames": lambda: setattr(claiming, "_sync", die),
    "before the claim is complete": lambda: setattr(claims, "complete", die),
    "after the claim is complete": lambda: setattr(claims, "complete", then_die(claims.complete)),
    "before the publish": lambda: setattr(ReceiveTask, "_receive", die),
    "after the publish": lambda: setattr(receive_task, "finish", die),
    "after the first removal": lambda: setattr(Path, "unlink", then_die(Path.unlink)),
    "after the removals": lambda: setattr(claims, "forget", die),
    "after the claim is forgotten": lambda: setattr(claims, "forget", then_die(claims.forget)),
    "before the archive has the file": lambda: setattr(os, "link", die),
    "while the archive and the location have it": lambda: setattr(os, "link", then_die(os.link)),
    "before the archive is synced": lambda: setattr(finishing, "_sync", die),
}


def main(url: str, user: str, location_name: str, home: str, point: str) -> None:
    with connect(url, user=user) as connection:
        [location] = [one for one in receive_locations(connection) if one.name == location_name]
        claimer = Claimer(connection, location, Path(home))
        POINTS[point]()
        claimer.scan()
        task = ReceiveTask(login=Login(url=url, user=user), location=location, home=Path(home))
        task.receive(claims.between(connection, location.location_id, 0, 1 << 60))
