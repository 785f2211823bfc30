"""Claims the instances of a host that are ready, and puts them with their messages into a queue in memory."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
import uuid
from collections import defaultdict, deque
from collections.abc import Callable, Iterable

from postroom.clock import Clock
from postroom.hosts.dequeue.poller import WHILE_THROTTLED, GetThrottle, is_held_back
from postroom.hosts.orchestrations.deployed_code import DeployedCode
from postroom.hosts.orchestrations.instance import ActiveInstance
from postroom.messagebox.configuration.hosts import Dequeuing
from postroom.messagebox.connection import Connect, LazyConnection
from postroom.messagebox.coordination.notifications import AFTER_WAKE_UP
from postroom.messagebox.orchestration_instances import HostOrchestrations
from postroom.messagebox.queues import ClaimedMessage
from postroom.processes.background_loop import BackgroundLoop


class InstancePoller:
    """Polls for one host instance. It starts paused."""

    def __init__(
        self,
        *,
        connect: Connect,
        procedures: HostOrchestrations,
        host_instance: int,
        dequeuing: Dequeuing,
        code: DeployedCode,
        work: InstanceQueue,
        get_throttle: GetThrottle,
        clock: Clock,
    ) -> None:
        self._connection = LazyConnection(connect)
        self._procedures = procedures
        self._host_instance = host_instance
        self.dequeuing = dequeuing
        self._code = code
        self._work = work
        self._get_throttle = get_throttle
        self._clock = clock
        self._claimed_at = 0.0
        #: The number of messages that were claimed with their instances since the start.
        self.claimed_messages = 0
        self.is_paused = True
        #: Held while it pauses, and while claimed instances are put into the queue.
        self._pausing = threading.Lock()
        self._woken_at = 0.0
        self._lost_claim: uuid.UUID | None = None
        self.loop = BackgroundLoop("poll orchestrations", self._poll)

    def wake(self) -> None:
        """Poll now: there may be messages."""
        if self._code.service_ids:  # not without orchestrations: waking a thread takes a tenth of the time of a publish
            self._woken_at = time.monotonic()
            self.loop.wake()

    def pause(self) -> None:
        """Put nothing into the queue any more. A claim in progress is released."""
        with self._pausing:
            self.is_paused = True

    def close(self) -> None:
        self._connection.close()

    def _poll(self) -> float:
        services = self._code.service_ids
        if self.is_paused or not services:
            return self.dequeuing.polling_interval.total_seconds()
        free = self._work.capacity - len(self._work)
        if free < self._work.capacity // 2:
            # A worker wakes this loop when half of the capacity is free.
            return self.dequeuing.polling_interval.total_seconds()
        if self._work.later_count >= MAX_LATER:
            self._release_lost_claim()
            return WHILE_THROTTLED
        throttle = self._get_throttle()
        if is_held_back(throttle, self._claimed_at):
            self._release_lost_claim()
            return WHILE_THROTTLED
        limit = free if throttle is None else throttle.rows(free)
        self._release_lost_claim()
        connection = self._connection.get()
        # Until its instances are in memory the claim counts as lost: its answer may be lost, or its messages.
        claim_id = self._lost_claim = uuid.uuid4()
        claimed = self._procedures.claim(
            connection,
            claim_id=claim_id,
            host_instance=self._host_instance,
            limit=limit,
            services=services,
            now=self._clock(),
        )
        self._claimed_at = time.monotonic()
        messages: dict[uuid.UUID, list[ClaimedMessage]] = defaultdict(list)
        try:
            for message in self._procedures.read_messages(connection, claim_id) if claimed else ():
                messages[message.instance_id].append(message)
        except MemoryError:
            # One of the instances may have the large messages. After two failures they are claimed one at a time.
            self._procedures.release(connection, claim_id, is_out_of_memory=True)
            self._lost_claim = None
            raise
        instances = [ActiveInstance(instance, messages[instance.instance_id]) for instance in claimed]
        with self._pausing:
            is_paused = self.is_paused
            if not is_paused:
                self._work.put(instances)
                self.claimed_messages += sum(instance.message_count for instance in instances)
        if is_paused:
            self._procedures.release(connection, claim_id)
        self._lost_claim = None
        if not claimed:
            is_woken = time.monotonic() - self._woken_at < AFTER_WAKE_UP
            return AFTER_WAKE_UP if is_woken else self.dequeuing.polling_interval.total_seconds()
        return 0.0

    def _release_lost_claim(self) -> None:
        if self._lost_claim is not None:
            self._procedures.release(self._connection.get(), self._lost_claim)
            self._lost_claim = None


#: The number of instances that a thread takes at most.
_MAX_BATCH = 100
#: The number of instances that may wait in memory because publishing is throttled.
MAX_LATER = 1_000


class InstanceQueue:
    """Instances that were just claimed, and those that have more to do after a persistence point.

    ``capacity`` is the number of instances that are claimed ahead. ``on_capacity`` is called when half of it is free.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.on_capacity: Callable[[], None] = lambda: None
        self._instances: deque[ActiveInstance] = deque()
        # By time: those that may be taken later.
        self._later: list[tuple[float, int, ActiveInstance]] = []
        self._numbers = itertools.count()
        self._changed = threading.Condition()
        #: The number of threads that wait for instances.
        self.waiting_threads = 0
        self._threads_to_end = 0

    def __len__(self) -> int:
        return len(self._instances)

    def put(self, instances: Iterable[ActiveInstance]) -> None:
        with self._changed:
            before = len(self._instances)
            self._instances.extend(instances)
            self._changed.notify(len(self._instances) - before)

    def put_later(self, instance: ActiveInstance, seconds: float) -> None:
        """Add an instance that is taken after some seconds. It does not count as claimed ahead, nor as in process:
        otherwise the send ports of its host could not reduce the backlog that it waits for."""
        with self._changed:
            heapq.heappush(self._later, (time.monotonic() + seconds, next(self._numbers), instance))
            self._changed.notify()

    def _move_due(self) -> float | None:
        """Move the instances whose time has come. Return the seconds until the next one, if there is any."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            self._instances.append(heapq.heappop(self._later)[2])
        return self._later[0][0] - now if self._later else None

    @property
    def later_count(self) -> int:
        """The number of instances that are taken later."""
        return len(self._later)

    @property
    def message_count(self) -> int:
        """The number of messages that were claimed with the instances in the queue, without those that may be taken
        later, or were until now."""
        with self._changed:
            return sum(instance.message_count for instance in self._instances if instance.delayed_since is None)

    def end_threads(self, count: int) -> None:
        """Let ``count`` threads end after their batch."""
        with self._changed:
            self._threads_to_end += count
            self._changed.notify_all()

    def take(self) -> list[ActiveInstance]:
        """Wait for instances, and take the share of one of the threads that wait now. A step may take long, so an
        instance that runs one next is taken alone. Return an empty list if the thread has to end."""
        with self._changed:
            self.waiting_threads += 1
            while True:
                seconds = self._move_due()
                if self._instances or self._threads_to_end:
                    break
                self._changed.wait(seconds)
            waiting_threads, self.waiting_threads = self.waiting_threads, self.waiting_threads - 1
            if self._threads_to_end:
                self._threads_to_end -= 1
                return []
            share = min(_MAX_BATCH, -(-len(self._instances) // waiting_threads))
            taken = [self._instances.popleft()]
            while not taken[0].runs_step and len(taken) < share and not self._instances[0].runs_step:
                taken.append(self._instances.popleft())
            has_capacity = len(self._instances) <= self.capacity // 2
        if has_capacity:
            self.on_capacity()
        return taken

    def discard(self) -> None:
        """Drop all instances. Their claims stay, until the caller releases them."""
        with self._changed:
            dropped = [*self._instances, *(instance for _, _, instance in self._later)]
            self._instances.clear()
            self._later.clear()
        for instance in dropped:
            instance.close()
