"""Runs the orchestrations of a host: one poller claims instances that are ready, some threads work on them."""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

from postroom.agent.routing.table import RoutingTable
from postroom.clock import Clock, system_clock
from postroom.errors import format_count
from postroom.hosts.dequeue.poller import GetThrottle
from postroom.hosts.orchestrations.deployed_code import DeployedCode
from postroom.hosts.orchestrations.instance import LiveInstances, WorkerSession
from postroom.hosts.orchestrations.poller import InstancePoller, InstanceQueue
from postroom.hosts.orchestrations.publish_throttle import PublishThrottle
from postroom.hosts.orchestrations.turn_watch import TurnWatch
from postroom.hosts.orchestrations.worker import InstanceWorker
from postroom.messagebox.configuration.hosts import Dequeuing, Host
from postroom.messagebox.connection import Connect, Connection, LazyConnection
from postroom.messagebox.orchestration_instances import ClaimedInstance, HostOrchestrations
from postroom.messagebox.orchestrations import read_orchestrations

_log = logging.getLogger(__name__)

#: How many instances are kept in memory while they wait, and how many bytes they may hold together. The others are
#: replayed from their journals.
MAX_LIVE = 1_000
MAX_LIVE_SIZE = 100_000_000


class OrchestrationRunner:
    """The orchestrations of one host in a host instance. It starts paused, and works after ``unpause``."""

    def __init__(
        self,
        *,
        connect: Connect,
        host: Host,
        host_instance: int,
        routing: RoutingTable,
        dequeuing: Dequeuing,
        turn_limit: timedelta,
        memory_queue: int,
        get_throttle: GetThrottle,
        on_stuck_thread: Callable[[], None],
        clock: Clock | None = None,
    ) -> None:
        self._connect = connect
        self._host = host
        self._host_instance = host_instance
        self._routing = routing
        self._code = DeployedCode()
        self._clock = clock or system_clock
        self._procedures = HostOrchestrations(host.name)
        self._live = LiveInstances(MAX_LIVE, max_size=MAX_LIVE_SIZE)
        self._watch = TurnWatch(turn_limit.total_seconds(), self._suspend_endless, on_stuck_thread)
        self._watch_connection = LazyConnection(connect)
        self._publishing = PublishThrottle(host.host_id)
        self._work = InstanceQueue(memory_queue)
        self._stopping = threading.Event()
        #: The number of times that instances were worked on, by outcome.
        self.counts: Counter[str] = Counter()
        self._poller = InstancePoller(
            connect=connect,
            procedures=self._procedures,
            host_instance=host_instance,
            dequeuing=dequeuing,
            code=self._code,
            work=self._work,
            get_throttle=get_throttle,
            clock=self._clock,
        )
        self._work.on_capacity = self._poller.loop.wake
        self._workers: list[InstanceWorker] = []

    def start(self) -> None:
        self._change_workers(self._poller.dequeuing.dequeue_threads)
        self._poller.loop.start()
        self._watch.loop.start()

    def pause(self) -> None:
        """Start no instance until ``unpause``. The caller releases the claims, including those of instances in
        progress: these continue from their last persistence point."""
        self._poller.pause()
        self._work.discard()

    def unpause(self) -> None:
        self._poller.is_paused = False
        self.wake()

    def set_dequeuing(self, dequeuing: Dequeuing) -> None:
        """Change the polling interval and the number of threads. A thread that is too many ends after its batch. One
        thread at a time."""
        before = self._poller.dequeuing
        if dequeuing == before:
            return
        self._poller.dequeuing = dequeuing
        self._change_workers(dequeuing.dequeue_threads - before.dequeue_threads)
        self._poller.loop.wake()

    def load_code(self, connection: Connection) -> None:
        """Load the code of the deployed orchestrations, if anything was applied. One thread at a time."""
        self._code.load(read_orchestrations(connection, host_id=self._host.host_id))
        self.wake()

    @property
    def waiting(self) -> dict[uuid.UUID, str]:
        """Why orchestrations wait, by their ids: their code is not loaded."""
        return self._code.waiting

    @property
    def problems(self) -> list[str]:
        """The reasons why this process cannot run orchestrations as usual."""
        stuck = len(self._watch.stuck_threads)
        return [f"{format_count(stuck, 'thread')} of orchestrations cannot be interrupted."] if stuck else []

    def wake(self) -> None:
        """Poll now: there may be messages."""
        self._poller.wake()

    @property
    def claimed_count(self) -> int:
        """The number of messages that were claimed with their instances since the start."""
        return self._poller.claimed_messages

    @property
    def unfinished_count(self) -> int:
        """The number of messages that were claimed with the instances that are queued or in progress."""
        return self._work.message_count + sum(worker.message_count for worker in self._workers)

    @property
    def unfinished_seqs(self) -> list[int]:
        """Return no numbers: orchestrations hold claims of instances, not of messages."""
        return []

    def stop(self, deadline: float) -> None:
        """Stop claiming, and wait until the instances in progress wait or have a persistence point."""
        self._stopping.set()
        self._poller.loop.stop()
        self._work.discard()
        self._work.end_threads(len(self._workers))
        for worker in self._workers:
            if worker.thread not in self._watch.stuck_threads:
                worker.thread.join(max(0.0, deadline - time.monotonic()))
        self._live.clear()
        for loop in (self._poller.loop, self._watch.loop):
            loop.stop()
            loop.join(max(1.0, deadline - time.monotonic()))
        self._poller.close()
        self._watch_connection.close()

    def _change_workers(self, count: int) -> None:
        self._work.end_threads(max(0, -count))
        self._workers = [worker for worker in self._workers if worker.thread.is_alive()]
        for _ in range(count):
            self._workers.append(
                InstanceWorker(
                    session=WorkerSession(self._connect, self._host, self._routing, self._procedures, self._clock),
                    code=self._code,
                    live=self._live,
                    work=self._work,
                    watch=self._watch,
                    publishing=self._publishing,
                    counts=self.counts,
                    stopping=self._stopping,
                    is_paused=lambda: self._poller.is_paused,
                )
            )

    def _suspend_endless(self, claimed: ClaimedInstance, description: str) -> None:
        """Suspend an instance whose code does not return, and release those that wait for the same thread. A dropped
        coroutine has no claim, so there is nothing to suspend."""
        connection = self._watch_connection.get()
        is_suspended = self._procedures.suspend(connection, claimed, code="ORCHESTRATION", description=description)
        what = "instance %s is suspended" if is_suspended else "the dropped coroutine of instance %s is interrupted"
        _log.error(f"{what}: %s", claimed.instance_id, description)
        for worker in self._workers:
            if claimed in worker.batch:
                self._procedures.release_instances(connection, worker.batch)
