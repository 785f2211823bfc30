"""A thread that works on claimed instances: it drives each until it waits, ends or fails."""

from __future__ import annotations

import itertools
import logging
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

from postroom.agent.direct.message_agent import MessageAgent
from postroom.agent.routing.table import RoutingTable
from postroom.clock import Clock
from postroom.errors import ClaimLost, PostroomError, is_environment_error
from postroom.hosts.dequeue.service import ThreadConnections
from postroom.hosts.orchestrations.deployed_code import DeployedCode
from postroom.hosts.orchestrations.instance_poller import WorkQueue
from postroom.hosts.orchestrations.instance_store import InstanceConnection, MessageBoxStore
from postroom.hosts.orchestrations.live_instances import LiveInstances
from postroom.hosts.orchestrations.turn_watch import TurnWatch
from postroom.messagebox.configuration.hosts import Host, ServiceClass
from postroom.messagebox.connection import Connect
from postroom.messagebox.orchestrations import ClaimedInstance, HostOrchestrations
from postroom.messagebox.queues import ClaimedMessage, HostQueues
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.orchestrations.driver import Driver
from postroom.orchestrations.execution import Continuation, Execution
from postroom.orchestrations.failures import JournalMismatch
from postroom.orchestrations.recorded_values import from_recorded
from postroom.orchestrations.replay import replay
from postroom.processes.backoff import Backoff
from postroom.processes.time_limit import TimedOut

_log = logging.getLogger(__name__)
_BACKOFF = Backoff(first=0.1, longest=10.0)


class InstanceWorker:
    """Takes claimed instances from ``work`` until it takes None. ``counts`` has the number of times that instances were
    worked on, by outcome. After a failure of the environment it tries again, until ``stopping`` is set or
    ``is_paused`` returns True."""

    def __init__(
        self,
        *,
        connect: Connect,
        host: Host,
        procedures: HostOrchestrations,
        code: DeployedCode,
        work: WorkQueue,
        live: LiveInstances,
        watch: TurnWatch,
        counts: Counter[str],
        stopping: threading.Event,
        is_paused: Callable[[], bool],
        clock: Clock,
    ) -> None:
        self._connect = connect
        self._host = host
        self._procedures = procedures
        self._code = code
        self._work = work
        self._live = live
        self._watch = watch
        self._counts = counts
        self._stopping = stopping
        self._is_paused = is_paused
        self._clock = clock
        self.thread = threading.Thread(target=self._run, name="orchestrations worker", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        connections = ThreadConnections(self._connect, HostQueues(self._host.name))
        routing = RoutingTable()
        thread: InstanceConnection | None = None
        while (work := self._work.get()) is not None:
            claimed, messages = work
            for attempt in itertools.count(1):
                try:
                    connection = connections.get_writing()
                    if thread is None or thread.connection is not connection:
                        thread = InstanceConnection(
                            connection,
                            MessageAgent(connection, self._host, routing, is_engine=True),
                            procedures=self._procedures,
                            subscriptions=ServiceSubscriptions(self._host, ServiceClass.ORCHESTRATIONS),
                            reader=connections,
                            clock=self._clock,
                        )
                    if attempt > 1:
                        messages = [
                            message
                            for message in self._procedures.read_messages(connection, claimed.claim_id)
                            if message.instance_id == claimed.instance_id
                        ]
                    self._counts[self._work_on(thread, claimed, messages)] += 1
                    break
                except (ClaimLost, TimedOut):
                    self._counts["discarded"] += 1
                    break
                except Exception as error:
                    # The claim stays, and nothing was stored: try again from the journal.
                    _log.warning("instance %s: %s", claimed.instance_id, error, exc_info=not _is_expected(error))
                    if self._stopping.wait(_BACKOFF.delay(attempt)) or self._is_paused():
                        break
        connections.close()

    def _work_on(self, thread: InstanceConnection, claimed: ClaimedInstance, messages: Sequence[ClaimedMessage]) -> str:
        """Drive an instance until it waits, ends or fails. Return the outcome."""
        loaded = self._code.find(claimed.service_id)
        if isinstance(loaded, str):
            return self._suspend(thread, claimed, code="ORCHESTRATION_CODE", description=loaded)
        deployed, orchestration = loaded
        store = MessageBoxStore(thread, claimed, deployed, messages)
        execution = self._live.take(claimed.instance_id, claimed.journal_length)
        try:
            if execution is None:
                if claimed.journal_length:
                    carried = Continuation(journal=claimed.journals, state=from_recorded(claimed.carried))
                    execution = replay(orchestration, claimed.instance_id, store.read_journal(), carried)
                else:
                    execution = Execution(orchestration, claimed.instance_id)
            driver = Driver(execution, store, partial(self._watch.watch, claimed))
            try:
                driver.run()
            finally:
                execution = driver.execution
        except JournalMismatch as error:
            return self._suspend(thread, claimed, code=error.code, description=_describe(error))
        except PostroomError as error:
            _close(execution)
            if isinstance(error, ClaimLost) or is_environment_error(error):
                raise
            return self._suspend(thread, claimed, code=error.code, description=_describe(error))
        except BaseException:
            _close(execution)
            raise
        if execution.error is not None:
            description = execution.format_error()
            _close(execution)
            return self._suspend(thread, claimed, code="ORCHESTRATION", description=description)
        if store.has_ended:
            if execution.termination is not None:
                _log.warning("instance %s has terminated itself: %s", claimed.instance_id, execution.termination)
            _close(execution)
            return "completed"
        self._live.put(execution, store.journal_length)
        return "waiting" if execution.suspension is None else "suspended"

    def _suspend(self, thread: InstanceConnection, claimed: ClaimedInstance, *, code: str, description: str) -> str:
        _log.warning("instance %s is suspended: %s", claimed.instance_id, description.splitlines()[-1])
        is_suspended = self._procedures.suspend(thread.connection, claimed, code=code, description=description)
        return "suspended" if is_suspended else "discarded"


def _close(execution: Execution | None) -> None:
    if execution is not None:
        execution.close()


def _describe(error: PostroomError) -> str:
    return "\n".join(filter(None, (error.what, error.why, error.hint)))


def _is_expected(error: Exception) -> bool:
    return isinstance(error, PostroomError | OSError)
