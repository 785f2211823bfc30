"""What a task does with the rows of the inbox that it was given: receive, then delete. Runs in a worker of Spark.

    row committed ─► numbered ─► the stream hands it to a task ─► committed with its receipts ─► row deleted

It may run again after any interruption. A row that is still there after its messages were committed has its receipts,
so that nothing of it is published twice; a row that is gone was dealt with.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from postroom.agent.interchange import Interchange
from postroom.agent.receiving import Received
from postroom.errors import PipelineFailure
from postroom.messagebox import inbox
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.inbox import HandedOver
from postroom.spark.careful import GRACE
from postroom.spark.executor import Executor, drop_executor, executor_for, pace_of
from postroom.spark.login import Login
from postroom.spark.receive.careful import begin_carefully, in_worker
from postroom.spark.receive.tally import publish_or_put_aside, suspend, tally_of

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class InboxTask:
    """The function that Spark runs on the Arrow batches of interchange ids; pickled once per query."""

    login: Login
    location: ReceiveLocation
    paced: bool = False
    """Whether to slow down between transactions while too much waits."""
    grace: float = GRACE
    """How much longer than a call may take the worker may be silent before it is ended."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with in_worker(self.location, self.grace) as careful:
            executor_for(self.login)
            for batch in batches:
                yield tally_of(self.receive([uuid.UUID(one) for one in batch.column(0).to_pylist()], careful=careful))

    def receive(self, interchange_ids: Sequence[uuid.UUID], *, careful: bool = False) -> list[Received]:
        """Publishes what was handed over under these ids, and deletes it. Raises if the MessageBox does not answer.
        ``careful`` after a failure: it may have been one of them that ended the worker."""
        if not interchange_ids:
            return []
        executor = executor_for(self.login)
        try:
            if careful:
                return [received for one in interchange_ids for received in self._carefully(executor, one)]
            return self._together(executor, interchange_ids, partial(self._publish, executor))
        except BaseException:
            drop_executor(self.login)
            raise

    def _carefully(self, executor: Executor, interchange_id: uuid.UUID) -> list[Received]:
        return begin_carefully(
            self.login,
            note=partial(inbox.note_begun, executor.connection, interchange_id),
            receive=partial(self._together, executor, [interchange_id], partial(self._publish, executor)),
            refuse=lambda failure: self._together(executor, [interchange_id], partial(self._refuse, executor, failure)),
            take_back=lambda connection: inbox.take_back_begun(connection, interchange_id),
        )

    def _together(
        self,
        executor: Executor,
        interchange_ids: Sequence[uuid.UUID],
        receive: Callable[[Sequence[HandedOver]], dict[uuid.UUID, Received]],
    ) -> list[Received]:
        given = inbox.read(executor.connection, interchange_ids, partial(self.login.connect, "inbox"))
        if not given:
            return []
        received = publish_or_put_aside(given, receive, partial(self._put_aside, executor))
        for one in received.values():
            if one.empty:
                # Nothing else will tell of it: it leaves no message and no instance.
                _log.warning("%s: interchange %s is empty", self.location.name, one.interchange_id)
        unfinished = {one.interchange_id for one in received.values() if one.unfinished}
        inbox.forget(executor.connection, received.keys() - unfinished)
        if unfinished:
            inbox.give_back(executor.connection, unfinished)
        return list(received.values())

    def _refuse(
        self, executor: Executor, failure: PipelineFailure, given: Sequence[HandedOver]
    ) -> dict[uuid.UUID, Received]:
        interchanges = [_interchange(one) for one in given]
        for one in interchanges:
            _log.error("%s: %s is suspended: %s", self.location.name, one.interchange_id, failure.what)
        return {one.interchange_id: executor.receiver.refuse(self.location, one, failure) for one in interchanges}

    def _publish(self, executor: Executor, given: Sequence[HandedOver]) -> dict[uuid.UUID, Received]:
        interchanges = [_interchange(one) for one in given]
        pace = pace_of(executor, self.location, paced=self.paced)
        return {one.interchange_id: one for one in executor.receiver.receive(self.location, interchanges, pace=pace)}

    def _put_aside(self, executor: Executor, given: HandedOver, error: Exception) -> Received | None:
        problem = f"Interchange {given.interchange_id} could not be received: {type(error).__name__}: {error}"
        _log.error("%s", problem, exc_info=error)
        suspended = suspend(executor, self.location, partial(_interchange, given), error)
        if suspended is None:
            inbox.put_aside(executor.connection, given.interchange_id, problem)
        return suspended


def _interchange(given: HandedOver) -> Interchange:
    return Interchange(interchange_id=given.interchange_id, body=given.body, context=given.context)
