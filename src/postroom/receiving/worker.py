"""What a process keeps from one receive task to the next: a connection and a routing table.

This is module-level state, because Spark has no other place for it: a worker runs many tasks, one at a time, and each
of them would connect and load all subscriptions. A worker is forked before this module is imported, so that no two
workers share a connection.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from dataclasses import dataclass

from postroom.agent.receiving.receiver import Receiver
from postroom.agent.routing.table import RoutingTable
from postroom.messagebox.connection import Connection, Login, is_working
from postroom.messagebox.throttling.pace import Pace
from postroom.monitoring.logs import LOG_FORMAT_VARIABLE, LogFormat, set_up_logging
from postroom.ports.receive_locations import ReceiveLocation
from postroom.processes.garbage_collection import freeze_objects


@dataclass(frozen=True, kw_only=True)
class Worker:
    """What this worker process keeps from one task to the next."""

    connection: Connection
    receiver: Receiver


_workers: dict[Login, Worker] = {}


def get_worker(login: Login) -> Worker:
    """Return the connection and the receiver of this process. Connect again if the connection has died since the last
    task."""
    worker = _workers.get(login)
    if worker is not None and not worker.connection.closed and is_working(worker.connection):
        return worker
    # Workers log to the same place as the driver, so in the same format.
    set_up_logging(LogFormat(os.environ.get(LOG_FORMAT_VARIABLE, "text")), logging.WARNING)
    for other in list(_workers):
        close_worker(other)
    connection = login.connect("receive")
    routing = RoutingTable()
    routing.catch_up(connection)
    worker = Worker(connection=connection, receiver=Receiver(connection, routing))
    _workers[login] = worker
    freeze_objects()
    return worker


def close_worker(login: Login) -> None:
    """Close the connection of this process, so that the next task connects again."""
    worker = _workers.pop(login, None)
    if worker is not None:
        worker.connection.close()


def make_pace(worker: Worker, location: ReceiveLocation, *, paced: bool) -> Callable[[], bool]:
    """Return what a task calls between two transactions. If it is ``paced``, it waits while receiving is throttled, and
    returns False if the task has to end."""
    return Pace(worker.connection, location.host_id, location.location_id) if paced else lambda: True
