"""Runs the orchestrations of a host: one poller claims instances that are ready, some threads work on them."""

from __future__ import annotations

import itertools
import logging
import queue
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Sequence
from datetime import timedelta
from functools import partial

from postroom.agent.direct.message_agent import MessageAgent
from postroom.agent.routing.table import RoutingTable
from postroom.clock import Clock, system_clock
from postroom.errors import ClaimLost, PostroomError, format_count, is_environment_error
from postroom.hosts.dequeue.service import ThreadConnections
from postroom.hosts.orchestrations.deployed_code import DeployedCode
from postroom.hosts.orchestrations.instance_store import InstanceConnection, MessageBoxStore
from postroom.hosts.orchestrations.live_instances import LiveInstances
from postroom.hosts.orchestrations.turn_watch import TurnWatch
from postroom.messagebox.configuration import Dequeuing, Host, ServiceClass
from postroom.messagebox.connection import Connect, Connection, LazyConnection
from postroom.messagebox.orchestrations import ClaimedInstance, HostOrchestrations, read_orchestrations
from postroom.messagebox.queues import ClaimedMessage, HostQueues
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.orchestrations.driver import Driver
from postroom.orchestrations.execution import Continuation, Execution
from postroom.orchestrations.failures import JournalMismatch
from postroom.orchestrations.recorded_values import from_recorded
from postroom.orchestrations.replay import replay
from postroom.processes.background_loop import BackgroundLoop
from postroom.processes.backoff import Backoff
from postroom.processes.time_limit import TimedOut

_log = logging.getLogger(__name__)

#: The number of instances that are kept in memory while they wait.
MAX_LIVE = 1_000
_BACKOFF = Backoff(first=0.1, longest=10.0)
#: Publishers wake a host at most this often, so a woken host keeps polling for a moment.
_AFTER_WAKE_UP = 0.03

_Work = tuple[ClaimedInstance, list[ClaimedMessage]]


class OrchestrationRunner:
    """The orchestrations of one host in a host instance. It starts paused, and works after ``unpause``."""

    def __init__(
        self,
        *,
        connect: Connect,
        host: Host,
        host_instance: int,
        dequeuing: Dequeuing,
        turn_limit: timedelta,
        clock: Clock | None = None,
    ) -> None:
        self._connect = connect
        self._host = host
        self._host_instance = host_instance
        self._dequeuing = dequeuing
        self._code = DeployedCode()
        self._clock = clock or system_clock
        self._procedures = HostOrchestrations(host.name)
        self._connection = LazyConnection(connect)
        self._live = LiveInstances(MAX_LIVE)
        self._watch = TurnWatch(turn_limit.total_seconds(), self._suspend_endless)
        self._watch_connection = LazyConnection(connect)
        #: A thread that takes None ends.
        self._work: queue.Queue[_Work | None] = queue.Queue()
        self._paused = True
        self._stopping = threading.Event()
        self._woken_at = 0.0
        self._lost_claim: uuid.UUID | None = None
        #: The number of times that instances were worked on, by outcome.
        self.counts: Counter[str] = Counter()
        self._poller = BackgroundLoop("poll orchestrations", self._poll)
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._start_threads(self._dequeuing.dequeue_threads)
        self._poller.start()
        self._watch.loop.start()

    def pause(self) -> None:
        """Start no instance until ``unpause``. The caller releases the claims, also those of instances in progress:
        these continue from their last persistence point."""
        self._paused = True
        self._discard()

    def unpause(self) -> None:
        self._paused = False
        self.wake()

    def set_dequeuing(self, dequeuing: Dequeuing) -> None:
        """Change the polling interval and the number of threads. A thread that is too many ends after its instance. One
        thread at a time."""
        before = self._dequeuing
        if dequeuing == before:
            return
        self._dequeuing = dequeuing
        self._start_threads(dequeuing.dequeue_threads - before.dequeue_threads)
        for _ in range(before.dequeue_threads - dequeuing.dequeue_threads):
            self._work.put(None)
        self._poller.wake()

    def load_code(self, connection: Connection) -> None:
        """Load the code of the deployed orchestrations, if anything was applied. One thread at a time."""
        self._code.load(read_orchestrations(connection, host_id=self._host.host_id))
        self.wake()

    @property
    def problems(self) -> list[str]:
        """The reasons why orchestrations cannot run at the moment."""
        stuck = self._watch.stuck_count
        if not stuck:
            return []
        return [f"{format_count(stuck, 'thread')} of orchestrations cannot be interrupted. Restart the host."]

    def wake(self) -> None:
        """Poll now: there may be messages."""
        self._woken_at = time.monotonic()
        self._poller.wake()

    @property
    def unfinished_seqs(self) -> list[int]:
        """Return no numbers: orchestrations hold claims of instances, not of messages."""
        return []

    def stop(self, deadline: float) -> None:
        """Stop claiming, and wait until the instances in progress wait or have a persistence point."""
        self._stopping.set()
        self._poller.stop()
        self._discard()
        for _ in self._threads:
            self._work.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        self._poller.join(max(1.0, deadline - time.monotonic()))
        self._watch.loop.stop()
        self._watch.loop.join(max(1.0, deadline - time.monotonic()))
        self._connection.close()
        self._watch_connection.close()
        self._live.clear()

    def _start_threads(self, count: int) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        for _ in range(count):
            thread = threading.Thread(target=self._run, name="orchestrations worker", daemon=True)
            thread.start()
            self._threads.append(thread)

    def _discard(self) -> None:
        ends = 0
        while True:
            try:
                ends += self._work.get_nowait() is None
            except queue.Empty:
                break
        for _ in range(ends):
            self._work.put(None)

    # -- polling -----------------------------------------------------------------------------------------------

    def _poll(self) -> float:
        services = self._code.service_ids
        if self._paused or not services:
            return self._dequeuing.polling_interval.total_seconds()
        batch = 4 * self._dequeuing.dequeue_threads
        if self._work.qsize() > batch // 2:
            return 0.005
        connection = self._connection.get()
        if self._lost_claim is not None:
            self._procedures.release(connection, self._lost_claim)
        # Until its instances are in memory the claim counts as lost: its answer may be lost, or its messages.
        claim_id = self._lost_claim = uuid.uuid4()
        claimed = self._procedures.claim(
            connection,
            claim_id=claim_id,
            host_instance=self._host_instance,
            limit=batch,
            services=services,
            now=self._clock(),
        )
        messages: dict[uuid.UUID, list[ClaimedMessage]] = defaultdict(list)
        for message in self._procedures.read_messages(connection, claim_id) if claimed else ():
            messages[message.instance_id].append(message)
        self._lost_claim = None
        if not claimed:
            is_woken = time.monotonic() - self._woken_at < _AFTER_WAKE_UP
            return _AFTER_WAKE_UP if is_woken else self._dequeuing.polling_interval.total_seconds()
        for instance in claimed:
            self._work.put((instance, messages[instance.instance_id]))
        return 0.0

    # -- working -----------------------------------------------------------------------------------------------

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
                    self.counts[self._work_on(thread, claimed, messages)] += 1
                    break
                except (ClaimLost, TimedOut):
                    self.counts["discarded"] += 1
                    break
                except Exception as error:
                    # The claim stays, and nothing was stored: try again from the journal.
                    _log.warning("instance %s: %s", claimed.instance_id, error, exc_info=not _is_expected(error))
                    if self._stopping.wait(_BACKOFF.delay(attempt)) or self._paused:
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
            _close(execution)
            return "completed"
        self._live.put(execution, store.journal_length)
        return "waiting"

    def _suspend_endless(self, claimed: ClaimedInstance, description: str) -> None:
        _log.error("instance %s is suspended: %s", claimed.instance_id, description)
        connection = self._watch_connection.get()
        self._procedures.suspend(connection, claimed, code="ORCHESTRATION", description=description)

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
