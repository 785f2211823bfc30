"""The routes of a batch: pairs of a message and a subscriber. They are written as queue rows of the subscribers' hosts,
and as references to the messages and their parts.

A subscriber with ordered delivery gets its messages in the order of their numbers. Two publishes that run at the same
time would commit their numbers in any order. So a publish locks the order of its ordered subscribers until COMMIT, and
draws the numbers of their rows under these locks. It takes all of them at once, after all its other locks and after
everything else is written: the rows of other subscribers wait for nobody.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from postroom.agent.idempotency import IdKind, Ids, Units, to_id_array
from postroom.agent.routing.batch_matches import MatchResult
from postroom.agent.routing.correlation import locate_instances
from postroom.agent.routing.table import Subscriber
from postroom.errors import StaleRouting
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.messagebox.queues import Cause, QueueTask
from postroom.messagebox.routing import RoutingLock, lock_instance_subscriptions, lock_ordered_instances
from postroom.messagebox.storage.copy_rows import (
    BIGINT,
    INTEGER,
    SMALLINT,
    UUID,
    SuspendedRow,
    build_label_column,
    is_in_fragments,
    write_references,
    write_suspended,
    write_work_queue,
)
from postroom.messagebox.subscriptions import JOIN_PRIORITY


class Routes:
    """Pairs of a message (its position in the batch) and a subscription, each with an instance id and a priority. The
    instance is new, unless the message joins an existing one. The ids of new instances are numbered from
    ``first_instance``."""

    def __init__(self, matches: MatchResult, units: Units, *, first_instance: int = 0) -> None:
        self.messages = matches.rows
        self._matches = matches
        self._subscription_ids = matches.subscription_ids
        self._instance_ids = units.derive_ids(IdKind.INSTANCE, first_instance + np.arange(len(matches.rows)))
        distinct, self._subscriber_of = np.unique(matches.subscription_ids, return_inverse=True)
        self._subscribers = [matches.subscribers[subscription_id] for subscription_id in distinct.tolist()]
        self._priorities = self._per_pair([subscriber.priority for subscriber in self._subscribers])
        self._is_started = self._per_pair([subscriber.started for subscriber in self._subscribers])

    @property
    def hosts(self) -> set[str]:
        """The hosts whose work queues get rows. Valid after ``write``: before it, the routing may lack a new host."""
        return {
            self._matches.host_names[subscriber.host_id]
            for subscriber in self._subscribers
            # Instances of a stopped orchestration get the later messages of their convoys.
            if subscriber.started or subscriber.convoy_set_id is not None
        }

    @property
    def has_convoys(self) -> bool:
        return bool(self._matches.convoys)

    @property
    def has_stopped_convoys(self) -> bool:
        return any(subscriber.convoy_set_id is not None and not subscriber.started for subscriber in self._subscribers)

    @property
    def has_ordered(self) -> bool:
        return any(subscriber.ordered for subscriber in self._subscribers)

    def write(self, connection: Connection, message_ids: Ids, ordered: OrderedRoutes) -> None:
        """Write one row per pair: to the work queue of the subscriber's host, or to the suspended queue if it is
        stopped. Add the pairs of ordered subscriptions to ``ordered`` instead.

        The caller has the routing lock. Raise StaleRouting if a matched instance has completed."""
        if not self._subscribers:
            return
        self._join_instances(connection)
        if not self.has_ordered:
            self._write_rows(connection, message_ids, np.arange(len(self.messages)))
            return
        is_ordered = self._per_pair([subscriber.ordered for subscriber in self._subscribers])
        ordered.add(self._take(np.flatnonzero(is_ordered)), message_ids)
        self._write_rows(connection, message_ids, np.flatnonzero(~is_ordered))

    def get_ordered_instances(self) -> set[uuid.UUID]:
        """Return the instances whose order a publish locks for these pairs, as insert_message does."""
        joined = {
            uuid.UUID(bytes=bytes(instance_id))
            for instance_id, subscriber in zip(self._instance_ids, self._subscriber_of.tolist(), strict=True)
            if self._subscribers[subscriber].convoy_set_id is not None
        }
        used = (self._subscribers[number] for number in np.unique(self._subscriber_of).tolist())
        return joined | {
            subscriber.instance_id or subscriber.service_id for subscriber in used if subscriber.convoy_set_id is None
        }

    def write_in_order(self, connection: Connection, message_ids: Ids) -> None:
        """Write the rows so that their numbers are in the order of the messages.

        Rows of different services may be written in any order. A send port can be started by its own subscription and
        stopped by that of a group. Then its messages alternate between the work queue and the suspended queue."""
        started, stopped = (
            {
                subscriber.service_id
                for subscriber in self._subscribers
                if subscriber.ordered and subscriber.started is state
            }
            for state in (True, False)
        )
        ends = np.flatnonzero(np.diff(self._is_started)) + 1
        for pairs in np.split(np.arange(len(self.messages)), ends if started & stopped else ends[:0]):
            self._write_rows(connection, message_ids, pairs)

    def _per_pair(self, values: Sequence[bool] | Sequence[int]) -> npt.NDArray[Any]:
        """Return the values of the subscribers for each pair."""
        return np.array(values)[self._subscriber_of]

    def _take(self, pairs: npt.NDArray[np.int64]) -> Routes:
        """Return the routes of some pairs, without the memory of the others."""
        taken = copy(self)
        taken.messages = self.messages[pairs]
        taken._subscription_ids = self._subscription_ids[pairs]
        taken._instance_ids = self._instance_ids[pairs]
        taken._subscriber_of = self._subscriber_of[pairs]
        taken._priorities = self._priorities[pairs]
        taken._is_started = self._is_started[pairs]
        taken._matches = replace(
            self._matches, rows=taken.messages, subscription_ids=taken._subscription_ids, convoys={}
        )
        return taken

    def _write_rows(self, connection: Connection, message_ids: Ids, pairs: npt.NDArray[np.int64]) -> None:
        host_ids = self._per_pair([subscriber.host_id for subscriber in self._subscribers])[pairs]
        started = self._is_started[pairs]
        for host_id in np.unique(host_ids).tolist():
            host = self._matches.host_names[host_id]
            for started_pairs in self._group_by_host_instance(pairs[(host_ids == host_id) & started]):
                self._write_work(connection, host, message_ids, started_pairs)
            stopped = pairs[(host_ids == host_id) & ~started]
            if len(stopped):
                write_suspended(
                    connection, host, [self._build_suspended_row(message_ids, pair) for pair in stopped.tolist()]
                )

    def locate_convoys(self, connection: Connection) -> None:
        """Set the instance ids and priorities of convoys to those of the instances that they join. A running instance
        gets them although its orchestration is stopped (ORS-03). Takes the routing lock."""
        # In the order of the messages: the first one of a convoy activates the instance.
        pairs = sorted(self._matches.convoys)
        if pairs:
            offered = [uuid.UUID(bytes=bytes(instance_id)) for instance_id in self._instance_ids[pairs]]
            convoys = [self._matches.convoys[pair] for pair in pairs]
            located = locate_instances(connection, convoys, offered, find_running=self.has_stopped_convoys)
            joins = [found.instance_id != new for found, new in zip(located, offered, strict=True)]
            self._instance_ids[pairs] = to_id_array([found.instance_id for found in located])
            self._priorities[np.array(pairs)[joins]] = JOIN_PRIORITY
            self._is_started[pairs] |= [found.is_running for found in located]

    def get_pairs(self, message: int) -> tuple[list[int], list[uuid.UUID], list[int]]:
        """Return the subscriptions of one message, and the instance id and the priority for each."""
        start, end = np.searchsorted(self.messages, [message, message + 1]).tolist()
        instances = [uuid.UUID(bytes=instance_id) for instance_id in self._instance_ids[start:end].tolist()]
        return self._subscription_ids[start:end].tolist(), instances, self._priorities[start:end].tolist()

    def _join_instances(self, connection: Connection) -> None:
        """Set the instance ids of instance subscriptions and convoys to the instances that they join."""
        waiting = [subscriber.subscription_id for subscriber in self._subscribers if subscriber.instance_id is not None]
        if waiting and not lock_instance_subscriptions(connection, waiting):
            raise StaleRouting("An instance that was matched has completed.")
        joined = [subscriber.joined_instance_id for subscriber in self._subscribers]
        if any(joined):
            ids = b"".join(instance_id.bytes if instance_id else bytes(16) for instance_id in joined)
            joins = self._per_pair([instance_id is not None for instance_id in joined])
            self._instance_ids[joins] = np.frombuffer(ids, dtype="V16")[self._subscriber_of[joins]]
        self.locate_convoys(connection)

    def _group_by_host_instance(self, pairs: npt.NDArray[np.int64]) -> Iterator[npt.NDArray[np.int64]]:
        """Yield the pairs that any host instance may claim, and those of callers that a host instance holds."""
        if all(subscriber.for_host_instance is None for subscriber in self._subscribers):
            yield pairs
            return
        is_held = np.array([subscriber.for_host_instance is not None for subscriber in self._subscribers])
        held = is_held[self._subscriber_of[pairs]]
        yield pairs[~held]
        yield pairs[held]

    def _write_work(
        self,
        connection: Connection,
        host: str,
        message_ids: Ids,
        pairs: npt.NDArray[np.int64],
    ) -> None:
        """Write the pairs into a work queue in the order of their messages. All or none of them are for a host
        instance."""
        if not len(pairs):
            return
        subscriber_of = self._subscriber_of[pairs]
        services = np.frombuffer(b"".join(subscriber.service_id.bytes for subscriber in self._subscribers), dtype="V16")
        columns = [
            (SMALLINT, np.array([subscriber.host_id for subscriber in self._subscribers])[subscriber_of]),
            (UUID, message_ids[self.messages[pairs]]),
            (BIGINT, self._subscription_ids[pairs]),
            build_label_column([subscriber.service_class for subscriber in self._subscribers], subscriber_of),
            (UUID, services[subscriber_of]),
            (UUID, self._instance_ids[pairs]),
            (SMALLINT, self._priorities[pairs]),
        ]
        tasks = [subscriber.task for subscriber in self._subscribers]
        if any(task is not QueueTask.DELIVER for task in tasks):
            columns.append(build_label_column(tasks, subscriber_of))
        if self._subscribers[int(subscriber_of[0])].for_host_instance is not None:
            host_instances = [subscriber.for_host_instance or 0 for subscriber in self._subscribers]
            columns.append((INTEGER, np.array(host_instances)[subscriber_of]))
        write_work_queue(connection, host, columns, len(pairs))

    def _build_suspended_row(self, message_ids: Ids, pair: int) -> SuspendedRow:
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
            priority=int(self._priorities[pair]),
            task=subscriber.task,
            cause=Cause.PORT_STOPPED,
            error_code="PORT_STOPPED",
            error_description=f"The subscriber {subscriber.service_name}{through} is enlisted but stopped.",
            group_id=subscriber.group_id,
        )


class OrderedRoutes:
    """Collects the routes of ordered subscriptions while the other routes of a batch are written."""

    def __init__(self) -> None:
        self._collected: list[tuple[Routes, Ids]] = []

    def add(self, routes: Routes, message_ids: Ids) -> None:
        self._collected.append((routes, message_ids))

    def write(self, connection: Connection) -> None:
        """Lock the order of all subscribers, and write their queue rows in the order of the messages."""
        instances = {instance for routes, _ in self._collected for instance in routes.get_ordered_instances()}
        if not instances:
            return
        lock_ordered_instances(connection, instances)
        for routes, message_ids in self._collected:
            routes.write_in_order(connection, message_ids)


class RoutedMessages:
    """Single messages and their routes. ``units`` has the unit of each message."""

    def __init__(self, messages: Sequence[Message], matches: MatchResult, units: Sequence[uuid.UUID]) -> None:
        self.messages = messages
        self.routes = Routes(matches, Units.from_uuids(units).take(matches.rows))
        self._counts = np.bincount(matches.rows, minlength=len(messages))
        self.only_references = np.zeros(len(messages), dtype=bool)
        """For each message, whether its row counts its only reference."""

    def count_in_rows(self, *, suspended: Collection[int]) -> None:
        """Mark the messages with exactly one reference: the row itself, which the caller writes, stores it, and the
        reference log gets no line. A ``suspended`` message has one reference more, because it is published again when
        it is resumed, so it is never marked."""
        self.only_references = self._counts == 1
        self.only_references[list(suspended)] = False
        self._counts[list(suspended)] += 1

    def write(self, connection: Connection, lock: RoutingLock, ordered: OrderedRoutes) -> None:
        """Write queue rows, and the references to messages and parts: one for each route."""
        self.routes.write(connection, to_id_array([message.message_id for message in self.messages]), ordered)
        write_message_references(connection, lock, self.messages, self._counts, only_references=self.only_references)


def write_message_references(
    connection: Connection,
    lock: RoutingLock,
    messages: Sequence[Message],
    counts: npt.NDArray[np.int64],
    *,
    only_references: npt.NDArray[np.bool_] | None = None,
) -> None:
    """Write ``counts`` references to each message and to each of its parts, except those that their rows count."""
    logged = counts > 0 if only_references is None else (counts > 0) & ~only_references
    rows = np.flatnonzero(logged)
    ids = to_id_array([messages[row].message_id for row in rows.tolist()])
    write_references(connection, "message", lock.message_log, ids, counts[rows])
    parts = [
        (part.part_id, count)
        for message, count, is_logged in zip(messages, counts.tolist(), logged.tolist(), strict=True)
        for part in message.parts
        if is_logged or (count and is_in_fragments(part))
    ]
    deltas = np.array([count for _, count in parts], dtype=np.int64)
    write_references(connection, "part", lock.part_log, to_id_array([part_id for part_id, _ in parts]), deltas)
