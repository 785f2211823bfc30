"""A thread that works on claimed instances: it drives several of them, and stores them together."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence

from postroom.errors import ClaimLost, PostroomError, is_environment_error
from postroom.hosts.orchestrations.deployed_code import DeployedCode
from postroom.hosts.orchestrations.instance import ActiveInstance, LiveInstances, WorkerSession
from postroom.hosts.orchestrations.persistence import Outcomes, persist_together
from postroom.hosts.orchestrations.poller import InstanceQueue
from postroom.hosts.orchestrations.publish_throttle import PublishThrottle, find_delay
from postroom.hosts.orchestrations.turn_watch import TurnWatch
from postroom.messagebox.instances import find_reason
from postroom.messagebox.orchestration_instances import ClaimedInstance
from postroom.orchestrations.code_places import format_traceback
from postroom.orchestrations.driver import Outcome
from postroom.processes.backoff import Backoff
from postroom.processes.time_limit import TimedOut

_log = logging.getLogger(__name__)
_BACKOFF = Backoff(first=0.1, longest=10.0)
#: The number of characters of an error that are stored with a suspended instance at most.
_MAX_DESCRIPTION = 100_000


class InstanceWorker:
    """Takes claimed instances from ``work`` until it has to end. ``counts`` has the number of times that instances
    were worked on, by outcome. After a failure of the environment it releases its instances, which continue from their
    journals, unless ``is_paused`` returns True: then the runner releases them."""

    def __init__(
        self,
        *,
        session: WorkerSession,
        code: DeployedCode,
        live: LiveInstances,
        work: InstanceQueue,
        watch: TurnWatch,
        publishing: PublishThrottle,
        counts: Counter[str],
        stopping: threading.Event,
        is_paused: Callable[[], bool],
    ) -> None:
        self._session = session
        self._code = code
        self._live = live
        self._work = work
        self._watch = watch
        self._publishing = publishing
        self._counts = counts
        self._stopping = stopping
        self._is_paused = is_paused
        #: The instances of the batch whose claims are released after it, because they were dropped from memory.
        self._dropped: list[ClaimedInstance] = []
        #: Those among them for which there was not enough memory.
        self._out_of_memory: list[ClaimedInstance] = []
        self._has_failed = False
        #: True if an instance of a convoy has ended. The messages that it has not received activate the next one.
        self._has_ended_convoy = False
        #: The instances that it works on now.
        self.batch: Sequence[ClaimedInstance] = ()
        #: The number of messages that were claimed with these instances, without those that have waited to publish.
        self.message_count = 0
        self.thread = threading.Thread(target=self._run, name="orchestrations worker", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        failures = 0
        while batch := self._work.take():
            self.batch = [instance.claimed for instance in batch]
            self.message_count = sum(instance.message_count for instance in batch if instance.delayed_since is None)
            self._dropped, self._out_of_memory, self._has_failed = [], [], False
            self._has_ended_convoy = False
            try:
                self._work_on(batch)
            except BaseException as error:
                # For example, the watch has interrupted a turn that was just ending. The thread must not end.
                _log.warning("a batch of %d instances was interrupted", len(batch), exc_info=error)
                self._dropped, self._out_of_memory, self._has_failed = list(self.batch), [], True
            self._watch.end_turn()
            failures = failures + 1 if self._has_failed else 0
            self._release_dropped(failures)
            if self._has_ended_convoy or any(claimed.is_suspected for claimed in self.batch):
                self._work.on_capacity()  # the next instance can be claimed
            self.batch, self.message_count = (), 0
        self._session.close()

    def _work_on(self, batch: Sequence[ActiveInstance]) -> None:
        """Drive each instance to its next persistence point, and store these together."""
        try:
            self._session.open()
        except PostroomError as error:
            for instance in batch:
                instance.close()
                self._handle_error(instance.claimed, error)
            return
        pending = [instance for instance in batch if instance.delayed_since is not None or self._advance(instance)]
        if not pending:
            return
        outcomes: Outcomes
        try:
            self._session.open()
            pending = self._delay_publishes(pending)
            outcomes = persist_together(self._session, pending)
        except (Exception, TimedOut) as error:
            outcomes = {instance.claimed.instance_id: error for instance in pending}
        unfinished = [
            instance
            for instance in pending
            if not self._handle_outcome(instance, outcomes[instance.claimed.instance_id])
        ]
        if self._stopping.is_set():
            for instance in unfinished:
                instance.close()
        else:
            self._work.put(unfinished)

    def _delay_publishes(self, pending: Sequence[ActiveInstance]) -> list[ActiveInstance]:
        """Put the instances that may not publish yet back into the queue. Return the others."""
        throttle = self._publishing.read(self._session.connection)
        if throttle is None:
            return list(pending)
        delays = [find_delay(instance, throttle) for instance in pending]
        for instance, delay in zip(pending, delays, strict=True):
            if delay and self._stopping.is_set():
                instance.close()
            elif delay:
                self._work.put_later(instance, delay)
        return [instance for instance, delay in zip(pending, delays, strict=True) if not delay]

    def _advance(self, instance: ActiveInstance) -> bool:
        """Drive an instance to its next persistence point. Return False if it has none, because it has failed."""
        claimed = instance.claimed
        try:
            self._session.open()
            if not instance.is_loaded:
                loaded = self._code.find(claimed.service_id)
                if isinstance(loaded, str):
                    self._suspend(claimed, code="ORCHESTRATION_CODE", description=loaded)
                    return False
                deployed, code = loaded
                instance.load(self._session, deployed, code, self._live, self._watch)
            instance.advance(self._session)
            if instance.point is not None:
                return True
            self._suspend(claimed, code="ORCHESTRATION", description=instance.execution.format_error())
        except BaseException as error:  # a library that the orchestration uses can raise anything
            self._handle_error(claimed, error)
        instance.close()
        return False

    def _handle_outcome(self, instance: ActiveInstance, outcome: Outcome | BaseException) -> bool:
        """Handle the outcome of a persistence point. Return False if the instance has more to do."""
        point = instance.point
        assert point is not None
        if isinstance(outcome, BaseException):
            instance.close()
            self._handle_error(instance.claimed, outcome)
            return True
        instance.keep_outcome(outcome)
        if outcome or not (point.has_ended or point.is_waiting):
            return False
        if point.has_ended:
            if (reason := instance.execution.termination) is not None:
                _log.warning("instance %s has terminated itself: %s", instance.claimed.instance_id, reason)
            instance.close()
            self._counts["completed"] += 1
            self._has_ended_convoy |= bool(instance.orchestration.convoy)
        else:
            self._live.put(instance.unload(), instance.journal_length)
            self._counts["waiting" if point.suspension is None else "suspended"] += 1
        return True

    # -- failures ----------------------------------------------------------------------------------------------

    def _handle_error(self, claimed: ClaimedInstance, error: BaseException) -> None:
        """Suspend an instance because of its own error. After an error of the environment it continues from its
        journal. An instance for which there is not enough memory is suspended after some attempts."""
        if isinstance(error, ClaimLost | TimedOut):
            # If the answer of a COMMIT was lost, the claim is still there.
            self._counts["discarded"] += 1
            self._dropped.append(claimed)
            return
        if not is_environment_error(error):
            try:
                if isinstance(error, PostroomError):
                    self._suspend(claimed, code=error.code, description=str(error))
                else:
                    self._suspend(claimed, code="ORCHESTRATION", description=format_traceback(error))
                return
            except Exception as failure:
                error = failure
        if not self._has_failed:  # the others of the batch fail for the same reason
            _log.warning("instance %s: %s", claimed.instance_id, error, exc_info=not _is_expected(error))
        self._has_failed = True
        (self._out_of_memory if isinstance(error, MemoryError) else self._dropped).append(claimed)

    def _suspend(self, claimed: ClaimedInstance, *, code: str, description: str) -> None:
        _log.warning("instance %s is suspended: %s", claimed.instance_id, find_reason(description))
        session = self._session
        session.open()
        is_suspended = session.procedures.suspend(
            session.connection, claimed, code=code, description=description[:_MAX_DESCRIPTION]
        )
        self._counts["suspended" if is_suspended else "discarded"] += 1

    def _release_dropped(self, failures: int) -> None:
        """Release the claims of instances that were dropped from memory, after a backoff if anything has failed."""
        while (self._dropped or self._out_of_memory) and not self._is_paused():
            if failures and self._stopping.wait(_BACKOFF.delay(failures)):
                return
            try:
                session = self._session
                session.open()
                session.procedures.release_instances(session.connection, self._dropped)
                session.procedures.release_instances(session.connection, self._out_of_memory, is_out_of_memory=True)
                return
            except PostroomError as error:
                count = len(self._dropped) + len(self._out_of_memory)
                _log.warning("the claims of %d instances cannot be released: %s", count, error)
                failures += 1


def _is_expected(error: BaseException) -> bool:
    return isinstance(error, PostroomError | OSError)
