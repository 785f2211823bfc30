"""What a Spark worker keeps from one task to the next: a connection and a routing table.

This is module-level state, because Spark has no other place for it: a worker runs many tasks, one at a time, and each
of them would connect and load all subscriptions. A worker is forked before this module is imported, so that no two
workers share a connection.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass

from postroom.agent.receiving.receiver import Receiver
from postroom.agent.routing.table import RoutingTable
from postroom.errors import PostroomError
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection, Login
from postroom.messagebox.streams.throttle import Pace


@dataclass(frozen=True, kw_only=True)
class Executor:
    """The connection and the receiver of a worker process."""

    connection: Connection
    receiver: Receiver


_executors: dict[Login, Executor] = {}


def get_executor(login: Login) -> Executor:
    """Return the executor of this process. Create it again if its connection has died since the last task."""
    executor = _executors.get(login)
    if executor is not None:
        try:
            executor.connection.execute("SELECT 1")
            return executor
        except PostroomError:
            pass
    # Workers log to the same place as the driver, where the time is needed.
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for other in list(_executors):
        drop_executor(other)
    connection = login.connect("receive")
    routing = RoutingTable()
    routing.catch_up(connection)
    executor = Executor(connection=connection, receiver=Receiver(connection, routing))
    _executors[login] = executor
    # Spark runs the garbage collector after every task. To visit every module and subscription is ten times the work of
    # a small task, so they are frozen.
    gc.unfreeze()  # release the executor before this one
    gc.collect()
    gc.freeze()
    return executor


def drop_executor(login: Login) -> None:
    """Close the executor of this process, so that the next task creates a new one."""
    executor = _executors.pop(login, None)
    if executor is not None:
        executor.connection.close()


def make_pace(executor: Executor, location: ReceiveLocation, *, paced: bool) -> Callable[[], bool]:
    """Return what a task calls between two transactions. If it is ``paced``, it waits while receiving is throttled, and
    returns False if the task has to end."""
    return Pace(executor.connection, location.host_id) if paced else lambda: True
