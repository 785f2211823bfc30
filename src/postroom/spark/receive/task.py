"""What a task does with the claimed files that it was given: receive, then take away. Runs in a worker of Spark.

It may run again after any interruption. Receipts keep the messages from being published twice, and a file that is gone
was dealt with.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import pyarrow as pa

from postroom.adapters import File
from postroom.agent.interchange import Interchange
from postroom.agent.receiving import Received, read_progress
from postroom.errors import PipelineFailure
from postroom.message import Context, FileSlice
from postroom.messagebox.configuration import ReceiveLocation
from postroom.spark.careful import GRACE
from postroom.spark.executor import Executor, drop_executor, executor_for, pace_of
from postroom.spark.intake import claim as claims
from postroom.spark.intake.claim import Claim, ClaimState
from postroom.spark.intake.finishing import finish, is_unchanged
from postroom.spark.login import Login
from postroom.spark.receive.careful import begin_carefully, in_worker
from postroom.spark.receive.tally import publish_or_put_aside, suspend, tally_of
from postroom.system_properties import FILE

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ReceiveTask:
    """The function that Spark runs on the Arrow batches of claimed files; pickled once per query."""

    login: Login
    location: ReceiveLocation
    home: Path
    paced: bool = False
    """Whether to slow down between transactions while too much waits."""
    grace: float = GRACE
    """How much longer than a call may take the worker may be silent before it is ended."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        with in_worker(self.location, self.grace) as careful:
            executor_for(self.login)
            for batch in batches:
                yield tally_of(self.receive([_claim(row) for row in batch.to_pylist()], careful=careful))

    def receive(self, given: Sequence[Claim], *, careful: bool = False) -> list[Received]:
        """Publishes what is in the files, and takes them away. Raises if the MessageBox does not answer. ``careful``
        after a failure: it may have been one of the files that ended the worker."""
        if not given:
            return []
        executor = executor_for(self.login)
        try:
            if careful or self.location.is_ordered:
                return self._one_by_one(executor, given, careful=careful)
            return self._together(executor, given)
        except BaseException:
            drop_executor(self.login)
            raise

    def _one_by_one(self, executor: Executor, given: Sequence[Claim], *, careful: bool) -> list[Received]:
        """One file at a time, each after the commit of the one before. In order, a file that is not ready holds up the
        rest."""
        done: list[Received] = []
        for claim in given:
            received = self._carefully(executor, claim) if careful else self._together(executor, [claim])
            done += received
            if self.location.is_ordered and (
                any(one.unfinished for one in received) or (not received and claim.path.exists())
            ):
                break
        return done

    def _carefully(self, executor: Executor, claim: Claim) -> list[Received]:
        return begin_carefully(
            self.login,
            note=partial(claims.note_begun, executor.connection, claim.interchange_id),
            receive=partial(self._together, executor, [claim]),
            refuse=lambda failure: self._together(executor, [claim], partial(self._refuse, executor, failure)),
            take_back=lambda connection: claims.take_back_begun(connection, claim.interchange_id),
        )

    def _together(
        self,
        executor: Executor,
        given: Sequence[Claim],
        receive: Callable[[Sequence[Claim]], dict[uuid.UUID, Received]] | None = None,
    ) -> list[Received]:
        ready = self._ready(executor, given)
        received: dict[uuid.UUID, Received] = {}
        if ready:
            receive = receive or partial(self._receive, executor)
            received = publish_or_put_aside(ready, receive, partial(self._put_aside, executor))
        published = [claim for claim in ready if _is_done(received.get(claim.interchange_id))]
        unfinished = [one.interchange_id for one in received.values() if one.unfinished]
        if unfinished:
            self._take_back(executor, unfinished)
        for claim in published:
            if received[claim.interchange_id].empty:
                # Nothing else will tell of it: it leaves no message and no instance.
                _log.warning("%s: %s is empty (%d bytes)", self.location.name, claim.name, claim.size)
        for problem in finish(executor.connection, published, self._file.archive_folder(self.home)):
            _log.warning("%s", problem)
        return list(received.values())

    @property
    def _file(self) -> File:
        return File(**self.location.adapter)

    def _ready(self, executor: Executor, given: Sequence[Claim]) -> list[Claim]:
        """Those whose files are what was claimed. One that was written to since has to settle again."""
        ready: list[Claim] = []
        changed: list[Claim] = []
        gone: list[Claim] = []
        for claim in given:
            try:
                (ready if is_unchanged(claim) else changed).append(claim)
            except FileNotFoundError:
                gone.append(claim)
        if changed:
            self._take_back(executor, [claim.interchange_id for claim in changed])
        if gone:
            progress = read_progress(executor.connection, [claim.interchange_id for claim in gone])
            claims.forget(executor.connection, [one for one, how_far in progress.items() if how_far.done])
            for claim in gone:
                if not progress[claim.interchange_id].done:
                    problem = "was taken away by somebody else before it was published."
                    claims.hold(executor.connection, claim, ClaimState.MISSING, problem)
                    _log.warning("%s: %s %s", self.location.name, claim.path, problem)
        return ready

    def _receive(self, executor: Executor, ready: Sequence[Claim]) -> dict[uuid.UUID, Received]:
        interchanges = [self._interchange(claim) for claim in ready]
        pace = pace_of(executor, self.location, paced=self.paced)
        return {one.interchange_id: one for one in executor.receiver.receive(self.location, interchanges, pace=pace)}

    def _refuse(
        self, executor: Executor, failure: PipelineFailure, ready: Sequence[Claim]
    ) -> dict[uuid.UUID, Received]:
        interchanges = [self._interchange(claim) for claim in ready]
        for claim in ready:
            _log.error("%s: %s is suspended: %s", self.location.name, claim.path, failure.what)
        return {one.interchange_id: executor.receiver.refuse(self.location, one, failure) for one in interchanges}

    def _interchange(self, claim: Claim) -> Interchange:
        return Interchange(
            interchange_id=claim.interchange_id,
            body=FileSlice(path=claim.path, length=claim.size),
            context=Context().write(FILE.ReceivedFileName, str(self._file.folder(self.home) / claim.name)),
        )

    def _take_back(self, executor: Executor, interchange_ids: Sequence[uuid.UUID]) -> None:
        """These have to settle again, and so to come again later; in an ordered location all that is claimed has to, to
        come after them."""
        if self.location.is_ordered:
            claims.settle_all_again(executor.connection, self.location.location_id)
        else:
            claims.settle_again(executor.connection, interchange_ids)

    def _put_aside(self, executor: Executor, claim: Claim, error: Exception) -> Received | None:
        problem = claims.not_received(claim, f"{type(error).__name__}: {error}")
        with suppress(FileNotFoundError):
            if not is_unchanged(claim):
                self._take_back(executor, [claim.interchange_id])
                return None
            suspended = suspend(executor, self.location, partial(self._interchange, claim), error)
            if suspended is not None:
                _log.error("%s: %s could not be received", self.location.name, claim.name, exc_info=error)
                return suspended
        if self.location.is_ordered:
            raise error  # nothing may pass it: the stream is started again, with it
        claims.hold(executor.connection, claim, ClaimState.FAILED, problem)
        _log.error("%s: %s %s", self.location.name, claim.name, problem, exc_info=error)
        return None


def _is_done(received: Received | None) -> bool:
    return received is not None and not received.unfinished


def _claim(row: dict[str, object]) -> Claim:
    size, modified_ns = row["size"], row["modified_ns"]
    assert isinstance(size, int)
    assert isinstance(modified_ns, int)
    return Claim(
        interchange_id=uuid.UUID(str(row["interchange_id"])),
        name=str(row["name"]),
        path=Path(str(row["path"])),
        size=size,
        modified_ns=modified_ns,
    )
