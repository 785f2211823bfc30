"""The receive task: publish what an adapter has polled, and have the adapter clean it up.

It runs in a worker of Spark, in a host, or in a pipeline process:

    polled ─► interchange published, with its receipts ─► cleaned up at its source

The task may run again after any interruption. Receipts prevent a second publish of what is still at the source. What is
no longer there was received by an earlier attempt.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from postroom.adapters.contract import Committed, Incoming, ReceiveAdapter, Refused
from postroom.agent.idempotency import interchange_for_key
from postroom.agent.poison_messages import attempt_alone, process_death_failure
from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.agent.streaming.interchange import Interchange, to_message_failure
from postroom.agent.streaming.receiver import Receiver
from postroom.clock import system_clock
from postroom.errors import (
    MessageBoxUnavailable,
    MessageFailure,
    PipelineFailure,
    format_count,
    is_environment_error,
)
from postroom.messagebox.connection import Connect, Connection
from postroom.messagebox.intake.numbered_interchanges import delete_attempts, record_attempt, undo_attempt
from postroom.messagebox.throttling.pace import Pace
from postroom.ports.receive_locations import ReceiveLocation

_log = logging.getLogger(__name__)

#: What is counted: files, messages published, instances suspended, failures that became error messages, messages
#: dropped because they have no authenticated originator, and files without any document.
OUTCOMES = ("files", "published", "suspended", "routed", "dropped", "empty")
#: The time from the arrival of the files to their publication.
MILLISECONDS = "milliseconds"


@dataclass(frozen=True, kw_only=True)
class Worker:
    """What a thread or process keeps from one task to the next."""

    connection: Connection
    receiver: Receiver
    connect: Connect
    """Opens another connection, if the first one may be broken."""


@dataclass(frozen=True, kw_only=True)
class NumberedIncoming(Incoming):
    """An interchange that got its id when it was claimed. The id of any other derives from its location and key."""

    interchange_id: uuid.UUID


@dataclass(frozen=True, kw_only=True)
class _Polled:
    incoming: Incoming
    interchange: Interchange

    @property
    def interchange_id(self) -> uuid.UUID:
        return self.interchange.interchange_id


_Results = dict[uuid.UUID, ReceiveResult]


@dataclass(kw_only=True)
class _Batch:
    """What became of the interchanges of one poll. The others are left at the source."""

    received: _Results = field(default_factory=dict)
    quarantined: set[uuid.UUID] = field(default_factory=set)
    failures: list[Exception] = field(default_factory=list)
    """Why interchanges are left at the source."""


@dataclass(frozen=True, kw_only=True)
class ReceiveTask:
    """Receives what one adapter polls."""

    location: ReceiveLocation
    adapter: ReceiveAdapter
    worker: Worker
    paced: bool = False
    """Slow down between transactions while too many messages wait in the MessageBox."""
    process: str = "worker"
    """The kind of process that it runs in, for error messages."""
    leaves_failures: bool = False
    """After an error of the environment, leave the interchange at its source, receive the others, and raise the first
    error at the end. Without it, the error is raised at once, and the task is run again."""
    report: Callable[[Sequence[ReceiveResult]], None] | None = None
    """Gets what was received, before it is cleaned up."""

    def receive(self, polled: Sequence[Incoming], *, isolated: bool = False) -> list[ReceiveResult]:
        """Publish the interchanges of one poll, and have them cleaned up. Raise MessageBoxUnavailable if the MessageBox
        does not answer. Raise the error of an interchange that is left at the source, after the others are received.

        ``isolated`` is for a retry, because one of the interchanges may have killed the process."""
        interchanges = {one.interchange_id: one for one in map(self._identify, polled)}
        batch = _Batch()
        if isolated or self.location.adapter.is_ordered:
            for one in interchanges.values():
                self._receive_alone(one, batch, isolated=isolated)
                if self.location.adapter.is_ordered and not _is_done(batch, one):
                    break  # the others must not overtake it
        else:
            self._receive_together(list(interchanges.values()), batch)
        self._finish(list(interchanges.values()), batch)
        if batch.failures:
            raise batch.failures[0]
        return list(batch.received.values())

    def _identify(self, incoming: Incoming) -> _Polled:
        if isinstance(incoming, NumberedIncoming):
            interchange_id = incoming.interchange_id
        else:
            interchange_id = interchange_for_key(self.location.location_id, incoming.key)
        # The receipt has the id of the interchange. The ids of the messages derive from another one, because a key may
        # be used again after its receipt was purged. Only those of the attempt that commits are ever seen.
        interchange = Interchange(
            interchange_id=interchange_id, body=incoming.body, context=incoming.context, seed=uuid.uuid4()
        )
        return _Polled(incoming=incoming, interchange=interchange)

    def _receive_together(self, interchanges: Sequence[_Polled], batch: _Batch) -> None:
        """Receive interchanges together. If one of them makes that fail, receive each alone."""
        if len(interchanges) > 1:
            try:
                batch.received |= self._publish(interchanges)
                return
            except Exception as error:
                if isinstance(error, MessageBoxUnavailable):
                    raise
                if is_environment_error(error) and not self.leaves_failures:
                    raise
        for one in interchanges:
            self._receive_alone(one, batch, isolated=False)

    def _receive_alone(self, one: _Polled, batch: _Batch, *, isolated: bool) -> None:
        """Receive one interchange, and record the attempt if it may have killed the process."""
        connection, receive = self.worker.connection, partial(self._publish_or_suspend, one, batch)
        try:
            if not isolated:
                receive()
                return
            attempt_alone(
                self.worker.connect,
                record=lambda: record_attempt(connection, self.location.location_id, one.interchange_id),
                undo=lambda another: undo_attempt(another, one.interchange_id),
                process=receive,
                suspend=partial(self._suspend_poison, one, batch),
            )
            delete_attempts(connection, one.interchange_id)
        except Exception as error:
            if not self.leaves_failures or isinstance(error, MessageBoxUnavailable):
                raise
            batch.failures.append(error)

    def _publish_or_suspend(self, one: _Polled, batch: _Batch) -> None:
        """Publish an interchange. Suspend or quarantine it if it makes that fail. Raise errors that it has not
        caused."""
        try:
            batch.received |= self._publish([one])
            return
        except Exception as error:
            if is_environment_error(error):
                raise
            self._log(logging.ERROR, one, "could not be received", error)
            failure = error
        if not isinstance(failure, OSError):  # a body that cannot be read cannot be suspended either
            try:
                batch.received |= self._reject(one, to_message_failure(failure))
                return
            except Exception as another:
                if is_environment_error(another):
                    raise
        self.adapter.quarantine(one.incoming, failure)
        batch.quarantined.add(one.interchange_id)

    def _publish(self, interchanges: Sequence[_Polled]) -> _Results:
        pace = make_pace(self.worker, self.location, paced=self.paced)
        results = self.worker.receiver.receive(self.location, [one.interchange for one in interchanges], pace=pace)
        return {result.interchange_id: result for result in results}

    def _suspend_poison(self, one: _Polled, batch: _Batch) -> None:
        hint = "Correct the message and send it again, or correct the component and resume."
        failure = process_death_failure(PipelineFailure, process=self.process, hint=hint)
        self._log(logging.ERROR, one, f"is suspended: {failure.what}")
        batch.received |= self._reject(one, failure)

    def _reject(self, one: _Polled, failure: MessageFailure) -> _Results:
        return {one.interchange_id: self.worker.receiver.reject(self.location, one.interchange, failure)}

    def _finish(self, interchanges: Sequence[_Polled], batch: _Batch) -> None:
        """Tell the adapter what became of its interchanges."""
        done = [one for one in interchanges if _is_done(batch, one)]
        self._log_and_measure(done, batch.received)
        if self.report is not None:
            self.report(list(batch.received.values()))
        if left := [one.incoming for one in interchanges if not _is_done(batch, one)]:
            self.adapter.release(left)
        committed, refused = [], []
        for one in done:
            if (result := batch.received.get(one.interchange_id)) is None:
                continue  # it is quarantined
            if result.refused is None:
                committed.append(Committed(incoming=one.incoming, suspended=result.suspended > 0))
            else:
                refused.append(Refused(incoming=one.incoming, failure=result.refused))
        if committed:
            self.adapter.clean_up(committed)
        if refused:
            self.adapter.refuse(refused)

    def _log_and_measure(self, done: Sequence[_Polled], received: _Results) -> None:
        """Log what became of interchanges, and add the time since their arrival to their results."""
        now = system_clock()
        for one in done:
            if (result := received.get(one.interchange_id)) is None:
                continue
            if result.empty:
                # It is only logged: an empty interchange has no message and no instance.
                self._log(logging.WARNING, one, f"is empty ({one.incoming.body.size} bytes)")
            if result.suspended:
                self._log(logging.WARNING, one, f"has {format_count(result.suspended, 'suspended instance')}")
            if one.incoming.arrived_at is not None:
                age = (now - one.incoming.arrived_at).total_seconds()
                received[one.interchange_id] = replace(result, milliseconds=max(0, round(1000 * age)))

    def _log(self, level: int, one: _Polled, what: str, error: Exception | None = None) -> None:
        """Write a line about an interchange to the log."""
        ids = {"interchange_id": one.interchange_id}
        name = one.incoming.name or one.incoming.key
        _log.log(level, "%s: %s %s", self.location.name, name, what, exc_info=error, extra=ids)


def _is_done(batch: _Batch, one: _Polled) -> bool:
    result = batch.received.get(one.interchange_id)
    return one.interchange_id in batch.quarantined if result is None else not result.unfinished


def make_pace(worker: Worker, location: ReceiveLocation, *, paced: bool) -> Callable[[], bool]:
    """Return what a task calls between two transactions. If it is ``paced``, it waits while receiving is throttled, and
    returns False if the task has to end."""
    return Pace(worker.connection, location.host_id, location.location_id) if paced else lambda: True


def count_outcomes(received: Sequence[ReceiveResult]) -> dict[str, int]:
    """Return the outcomes of interchanges, and the sum of their times."""
    counts = {name: sum(int(getattr(result, name)) for result in received) for name in (*OUTCOMES[1:], MILLISECONDS)}
    return {"files": sum(not result.unfinished for result in received), **counts}
