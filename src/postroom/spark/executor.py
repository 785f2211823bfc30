"""What a Python worker of Spark keeps from one task to the next: a connection, and a warm routing table.

This is the only state of a process in Postroom that no caller holds, because Spark gives a task nothing to hold it by:
workers are reused for many tasks, one at a time, and each would otherwise connect and load every subscription again.
A worker is forked before this module is imported, so that no two of them share a connection.
"""

from __future__ import annotations

import gc
import logging
from collections.abc import Callable
from dataclasses import dataclass

from postroom.agent.receiving import Receiver
from postroom.agent.routing import RoutingTable
from postroom.errors import PostroomError
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection
from postroom.messagebox.throttling import Pace
from postroom.spark.login import Login


@dataclass(frozen=True, kw_only=True)
class Executor:
    """The means of one worker process."""

    connection: Connection
    receiver: Receiver


_kept: dict[Login, Executor] = {}


def executor_for(login: Login) -> Executor:
    """This process's executor, made or made again if its connection has died since the last task."""
    executor = _kept.get(login)
    if executor is not None:
        try:
            executor.connection.execute("SELECT 1")
            return executor
        except PostroomError:
            pass
    # What a worker logs goes where the driver's log goes; there it has to tell when it was.
    logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    for other in list(_kept):
        drop_executor(other)
    connection = login.connect("receive")
    routing = RoutingTable()
    routing.catch_up(connection)
    executor = Executor(connection=connection, receiver=Receiver(connection, routing))
    _kept[login] = executor
    # Spark collects garbage after every task, and would look at every module and subscription each time: ten times the
    # work of a small task. What is here now is to stay.
    gc.unfreeze()  # what was kept before is not
    gc.collect()
    gc.freeze()
    return executor


def drop_executor(login: Login) -> None:
    """Closes what is kept, so that the next task starts afresh."""
    executor = _kept.pop(login, None)
    if executor is not None:
        executor.connection.close()


def pace_of(executor: Executor, location: ReceiveLocation, *, paced: bool) -> Callable[[], bool]:
    """What a task does between two transactions for a location: it waits while too much does, if it is ``paced``, and
    learns whether to go on."""
    return Pace(executor.connection, location.host_id) if paced else lambda: True
