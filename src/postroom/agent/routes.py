"""The routes of a batch: who receives which message, as queue rows per host."""

from __future__ import annotations

import uuid

import numpy as np
import numpy.typing as npt

from postroom.agent.identity import Kind, Units
from postroom.agent.routing import RoutingTable, Subscriber
from postroom.messagebox.connection import Connection
from postroom.messagebox.copying import BIGINT, SMALLINT, UUID
from postroom.messagebox.writing import Cause, SuspendedRow, Task, write_suspended, write_work_queue


class Routes:
    """Pairs of message (its position in the batch) and subscription, each with an instance id of its own."""

    def __init__(
        self,
        *,
        messages: npt.NDArray[np.int64],
        subscription_ids: npt.NDArray[np.int64],
        units: Units,
        routing: RoutingTable,
    ) -> None:
        self.messages = messages
        self._subscription_ids = subscription_ids
        self._instance_ids = units.ids(Kind.INSTANCE, np.arange(len(messages)))
        distinct, self._subscriber_of = np.unique(subscription_ids, return_inverse=True)
        self._subscribers = [routing.subscribers[one] for one in distinct.tolist()]
        self._host_names = routing.host_names

    @property
    def hosts(self) -> set[str]:
        """The hosts whose work queues get rows."""
        return {self._host_names[one.host_id] for one in self._subscribers if one.started}

    def write(self, connection: Connection, message_ids: npt.NDArray[np.void]) -> None:
        """One row per pair: in the work queue of the subscriber's host, or in the suspended queue if it is stopped."""
        if not self._subscribers:
            return
        host_ids = np.array([one.host_id for one in self._subscribers])[self._subscriber_of]
        started = np.array([one.started for one in self._subscribers])[self._subscriber_of]
        for host_id in np.unique(host_ids).tolist():
            host = self._host_names[host_id]
            self._write_work(connection, host, message_ids, np.flatnonzero((host_ids == host_id) & started))
            stopped = np.flatnonzero((host_ids == host_id) & ~started)
            if len(stopped):
                write_suspended(connection, host, [self._suspended(message_ids, pair) for pair in stopped.tolist()])

    def _write_work(
        self, connection: Connection, host: str, message_ids: npt.NDArray[np.void], pairs: npt.NDArray[np.int64]
    ) -> None:
        if not len(pairs):
            return
        subscriber_of = self._subscriber_of[pairs]
        services = np.frombuffer(b"".join(one.service_id.bytes for one in self._subscribers), dtype="V16")
        columns = [
            (SMALLINT, np.array([one.host_id for one in self._subscribers])[subscriber_of]),
            (UUID, message_ids[self.messages[pairs]]),
            (BIGINT, self._subscription_ids[pairs]),
            (SMALLINT, np.array([one.service_class for one in self._subscribers])[subscriber_of]),
            (UUID, services[subscriber_of]),
            (UUID, self._instance_ids[pairs]),
            (SMALLINT, np.array([one.priority for one in self._subscribers])[subscriber_of]),
        ]
        write_work_queue(connection, host, columns, len(pairs))

    def _suspended(self, message_ids: npt.NDArray[np.void], pair: int) -> SuspendedRow:
        subscriber: Subscriber = self._subscribers[int(self._subscriber_of[pair])]
        group = subscriber.group_name
        through = "" if group is None else f", or the send port group {group} that the message comes through,"
        return SuspendedRow(
            message_id=uuid.UUID(bytes=bytes(message_ids[self.messages[pair]])),
            instance_id=uuid.UUID(bytes=bytes(self._instance_ids[pair])),
            subscription_id=subscriber.subscription_id,
            host_id=subscriber.host_id,
            service_class=subscriber.service_class,
            service_id=subscriber.service_id,
            priority=subscriber.priority,
            task=Task.DELIVER,
            cause=Cause.PORT_STOPPED,
            error_code="PORT_STOPPED",
            error_description=f"The subscriber {subscriber.service_name}{through} is enlisted but stopped.",
            group_id=subscriber.group_id,
        )
