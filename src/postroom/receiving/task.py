"""The receive task: publish interchanges and remove them from their source.

It runs in a worker of Spark, in a host, or in a pipeline process:

    row read ─► interchange published, with its receipts ─► removed from the source

The task may run again after any interruption. Receipts prevent a second publish of what is still in the source. What is
no longer there was received by an earlier attempt.
"""

from __future__ import annotations

import logging
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, Generic, Protocol, TypeVar

from postroom.agent.poison_messages import attempt_alone, process_death_failure
from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.agent.streaming.interchange import Interchange, to_message_failure
from postroom.agent.streaming.receiver import Receiver
from postroom.clock import system_clock
from postroom.errors import PipelineFailure, format_count, is_environment_error
from postroom.messagebox.connection import Connect, Connection
from postroom.messagebox.throttling.pace import Pace
from postroom.ports.receive_locations import ReceiveLocation

_log = logging.getLogger(__name__)

#: What is counted: files, messages published, instances suspended, failures that became error messages, messages
#: dropped because they have no authenticated originator, and files without any document.
OUTCOMES = ("files", "published", "suspended", "routed", "dropped", "empty")
#: The time from the arrival of the files to their publication.
MILLISECONDS = "milliseconds"


class Identified(Protocol):
    """An interchange in its source."""

    @property
    def interchange_id(self) -> uuid.UUID: ...


Row = TypeVar("Row", bound=Identified)
Item = TypeVar("Item", bound=Identified)


@dataclass(frozen=True, kw_only=True)
class Worker:
    """What a thread or process keeps from one task to the next."""

    connection: Connection
    receiver: Receiver
    connect: Connect
    """Opens another connection, if the first one may be broken."""


class ReceiveSource(ABC, Generic[Row, Item]):
    """Where the interchanges of a receive location wait: claimed files, the inbox, or a batch of an adapter."""

    location: ReceiveLocation

    @abstractmethod
    def read(self, connection: Connection, rows: Sequence[Row]) -> list[Item]:
        """Return the interchanges that can be received now."""

    @abstractmethod
    def interchange(self, item: Item) -> Interchange: ...

    def get_arrival(self, item: Item) -> float:
        """Return when it arrived, in seconds since 1970."""
        return system_clock().timestamp()

    @abstractmethod
    def describe(self, item: Item) -> str:
        """Return what the log calls it."""

    def is_unchanged(self, item: Item) -> bool:
        return True

    def is_waiting(self, row: Row) -> bool:
        """Return True if the interchange is still in the source."""
        return True

    @abstractmethod
    def finish(self, connection: Connection, items: Sequence[Item]) -> None:
        """Remove interchanges that were received."""

    def give_back(self, connection: Connection, interchange_ids: Sequence[uuid.UUID]) -> None:
        """Have interchanges read again later."""

    @abstractmethod
    def quarantine(self, connection: Connection, item: Item, error: Exception) -> None:
        """Keep an interchange that can be neither received nor suspended from being received."""

    @abstractmethod
    def record_attempt(self, connection: Connection, interchange_id: uuid.UUID) -> int: ...

    @abstractmethod
    def undo_attempt(self, connection: Connection, interchange_id: uuid.UUID) -> None: ...


#: Publishes interchanges, or suspends them.
_Receive = Callable[[Sequence[Any]], dict[uuid.UUID, ReceiveResult]]


@dataclass(frozen=True, kw_only=True)
class ReceiveTask:
    """Receives interchanges of one source."""

    source: ReceiveSource[Any, Any]
    paced: bool = False
    """Slow down between transactions while too many messages wait in the MessageBox."""
    can_refuse: bool = False
    """The adapter decides about interchanges that the pipeline rejects, if it asks for that."""
    process: str = "worker"
    """The kind of process that it runs in, for error messages."""

    @property
    def location(self) -> ReceiveLocation:
        return self.source.location

    @cached_property
    def _is_ordered(self) -> bool:
        return self.location.adapter.is_ordered

    def receive(self, worker: Worker, rows: Sequence[Identified], *, isolated: bool = False) -> list[ReceiveResult]:
        """Publish interchanges and remove them from their source. Raise if the MessageBox does not answer.

        ``isolated`` is for a retry, because one of the interchanges may have killed the process."""
        if not rows:
            return []
        if self._is_ordered:
            return self._receive_in_order(worker, rows, isolated=isolated)
        if isolated:
            return [received for row in rows for received in self._receive_isolated(worker, row)]
        return self._receive_batch(worker, rows)

    def _receive_in_order(self, worker: Worker, rows: Sequence[Identified], *, isolated: bool) -> list[ReceiveResult]:
        """Receive each interchange after the commit of the one before. One that is not ready delays the others."""
        done: list[ReceiveResult] = []
        for row in rows:
            received = self._receive_isolated(worker, row) if isolated else self._receive_batch(worker, [row])
            done += received
            if any(interchange.unfinished for interchange in received) or (
                not received and self.source.is_waiting(row)
            ):
                break
        return done

    def _receive_isolated(self, worker: Worker, row: Identified) -> list[ReceiveResult]:
        interchange_id, connection = row.interchange_id, worker.connection
        return attempt_alone(
            worker.connect,
            record=lambda: self.source.record_attempt(connection, interchange_id),
            undo=lambda another: self.source.undo_attempt(another, interchange_id),
            process=lambda: self._receive_batch(worker, [row]),
            suspend=lambda: self._receive_batch(worker, [row], partial(self._suspend_poison, worker)),
        )

    def _receive_batch(
        self, worker: Worker, rows: Sequence[Identified], receive: _Receive | None = None
    ) -> list[ReceiveResult]:
        source, connection = self.source, worker.connection
        items = source.read(connection, rows)
        if not items:
            return []
        received = self._receive_all(worker, items, receive or partial(self._publish, worker))
        unfinished = [interchange.interchange_id for interchange in received.values() if interchange.unfinished]
        if unfinished:
            source.give_back(connection, unfinished)
        finished = received.keys() - set(unfinished)
        done = [item for item in items if item.interchange_id in finished]
        self._log_and_measure(received, done)
        if done:
            source.finish(connection, done)
        return list(received.values())

    def _log_and_measure(self, received: dict[uuid.UUID, ReceiveResult], done: Sequence[Any]) -> None:
        """Log what became of interchanges, and add the time since their arrival to their results."""
        now = system_clock().timestamp()
        for item in done:
            result = received[item.interchange_id]
            if result.empty:
                # It is only logged: an empty interchange has no message and no instance.
                self._log(logging.WARNING, item, f"is empty ({self.source.interchange(item).body.size} bytes)")
            if result.suspended:
                self._log(logging.WARNING, item, f"has {format_count(result.suspended, 'suspended instance')}")
            milliseconds = max(0, round(1000 * (now - self.source.get_arrival(item))))
            received[item.interchange_id] = replace(result, milliseconds=milliseconds)

    def _receive_all(self, worker: Worker, items: Sequence[Any], receive: _Receive) -> dict[uuid.UUID, ReceiveResult]:
        """Receive items together. If one of them makes that fail, receive each alone, and suspend the one that fails.

        Raise errors that are not caused by an item."""
        try:
            return receive(items)
        except Exception as error:
            if is_environment_error(error):
                raise
            if len(items) > 1:
                each = [self._receive_all(worker, [item], receive) for item in items]
                return {
                    interchange_id: interchange for received in each for interchange_id, interchange in received.items()
                }
            suspended = self._suspend_or_quarantine(worker, items[0], error)
            return {} if suspended is None else {suspended.interchange_id: suspended}

    def _publish(self, worker: Worker, items: Sequence[Any]) -> dict[uuid.UUID, ReceiveResult]:
        interchanges = [self.source.interchange(item) for item in items]
        pace = make_pace(worker, self.location, paced=self.paced)
        results = worker.receiver.receive(self.location, interchanges, pace=pace, can_refuse=self.can_refuse)
        return {result.interchange_id: result for result in results}

    def _suspend_poison(self, worker: Worker, items: Sequence[Any]) -> dict[uuid.UUID, ReceiveResult]:
        hint = "Correct the message and send it again, or correct the component and resume."
        failure = process_death_failure(PipelineFailure, process=self.process, hint=hint)
        for item in items:
            self._log(logging.ERROR, item, f"is suspended: {failure.what}")
        suspended = [worker.receiver.reject(self.location, self.source.interchange(item), failure) for item in items]
        return {interchange.interchange_id: interchange for interchange in suspended}

    def _log(self, level: int, item: Identified, what: str, error: Exception | None = None) -> None:
        """Write a line about an interchange to the log."""
        ids = {"interchange_id": item.interchange_id}
        _log.log(level, "%s: %s %s", self.location.name, self.source.describe(item), what, exc_info=error, extra=ids)

    def _suspend_or_quarantine(self, worker: Worker, item: Any, error: Exception) -> ReceiveResult | None:
        source, connection = self.source, worker.connection
        if not source.is_unchanged(item):
            source.give_back(connection, [item.interchange_id])
            return None
        self._log(logging.ERROR, item, "could not be received", error)
        if not isinstance(error, OSError):  # a body that cannot be read cannot be suspended either
            try:
                return worker.receiver.reject(self.location, source.interchange(item), to_message_failure(error))
            except Exception as another:
                if is_environment_error(another):
                    raise
        source.quarantine(connection, item, error)
        return None


def make_pace(worker: Worker, location: ReceiveLocation, *, paced: bool) -> Callable[[], bool]:
    """Return what a task calls between two transactions. If it is ``paced``, it waits while receiving is throttled, and
    returns False if the task has to end."""
    return Pace(worker.connection, location.host_id, location.location_id) if paced else lambda: True


def count_outcomes(received: Sequence[ReceiveResult]) -> dict[str, int]:
    """Return the outcomes of interchanges, and the sum of their times."""
    counts = {name: sum(int(getattr(result, name)) for result in received) for name in (*OUTCOMES[1:], MILLISECONDS)}
    return {"files": sum(not result.unfinished for result in received), **counts}
