"""A process that polls a receive location once, and is killed by a poison message."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.messagebox.connection import connect
from postroom.ports.receive_locations import read_receive_locations
from postroom.receiving.polled_location import PolledLocation
from tests.support.interrupted_process import interrupt_self

POISON = b'{"region": "EU", "total": 666}'


def kill_at_poison(receive: Any) -> Any:
    """Return a function that kills the process before it receives a poison message."""

    def call(self: Receiver, location: Any, interchanges: Sequence[Interchange], **named: Any) -> Any:
        if any(b"".join(interchange.body.chunks()) == POISON for interchange in interchanges):
            interrupt_self()
        return receive(self, location, interchanges, **named)

    return call


def main(url: str, user: str, location_name: str, home: str) -> None:
    Receiver.receive = kill_at_poison(Receiver.receive)  # type: ignore[method-assign]
    open_connection = partial(connect, url, user=user)
    with open_connection() as connection:
        [location] = [found for found in read_receive_locations(connection) if found.name == location_name]
    PolledLocation(location, connect=open_connection, home=Path(home), routing=RoutingTable()).step()
