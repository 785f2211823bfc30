"""A process that stores, numbers and receives interchanges once, and is interrupted at a given point."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path

from postroom.agent.streaming.receiver import Receiver
from postroom.message import FRAGMENT_SIZE, Context
from postroom.messagebox.connection import Login, connect
from postroom.messagebox.intake import inbox
from postroom.messagebox.intake.numbered_interchanges import read_numbered
from postroom.ports.receive_locations import read_receive_locations
from postroom.receiving.inbox_receive_adapter import InboxReceiveAdapter
from postroom.spark.receive.task import SparkReceiveTask
from tests.support.interrupted_process import interrupt_after, interrupt_self

#: The interchanges that the process stores: a small one, and a large one in fragments.
SMALL, LARGE = uuid.UUID(int=1 << 120), uuid.UUID(int=2 << 120)
CONTENTS = {SMALL: b'{"region": "EU"}', LARGE: b'{"region": "EU", "filler": "%s"}' % (b"x" * (3 * FRAGMENT_SIZE))}

#: The points at which the process is killed or frozen, with the replaced function.
POINTS: dict[str, Callable[[], None]] = {
    "while the first interchange is stored": lambda: setattr(inbox, "split_into_fragments", interrupt_self),
    "between the fragments of a large interchange": lambda: setattr(
        inbox, "_insert_fragments", interrupt_after(inbox._insert_fragments)
    ),
    "after the first interchange is stored": lambda: setattr(
        inbox, "store_in_inbox", interrupt_after(inbox.store_in_inbox)
    ),
    "before the rows are numbered": lambda: setattr(inbox, "assign_numbers", interrupt_self),
    "after the rows are numbered": lambda: setattr(inbox, "assign_numbers", interrupt_after(inbox.assign_numbers)),
    "before the publish": lambda: setattr(Receiver, "receive", interrupt_self),
    "after the publish": lambda: setattr(inbox, "delete_interchanges", interrupt_self),
    "after the rows are deleted": lambda: setattr(
        inbox, "delete_interchanges", interrupt_after(inbox.delete_interchanges)
    ),
}


def main(url: str, user: str, location_name: str, point: str) -> None:
    with connect(url, user=user) as connection:
        [location] = [found for found in read_receive_locations(connection) if found.name == location_name]
        POINTS[point]()
        for interchange_id, content in CONTENTS.items():
            inbox.store_in_inbox(connection, location.location_id, interchange_id, Context(), [content])
        InboxReceiveAdapter(connection, location, connect=partial(connect, url, user=user)).scan()
        login = Login(url=url, user=user)
        rows = read_numbered(connection, location.location_id, 0, 1 << 60)
        SparkReceiveTask(location=location, home=Path(), login=login).receive(rows)
