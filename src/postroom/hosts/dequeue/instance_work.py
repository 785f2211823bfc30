"""Work in hand of a service whose instances have many messages: those of one instance one after the other.

A message is handed out when the outcome of the one before it is stored. When that did not go well, what is behind it is
given back (see in_order.py), and the MessageBox keeps the order from there on.
"""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Sequence

from postroom.hosts.dequeue.work_in_hand import WorkInHand
from postroom.messagebox.queues import ClaimedMessage
from postroom.messagebox.storage.writing import Task


class InstanceWork(WorkInHand):
    """As ``WorkInHand``, with a queue behind each instance that is being served."""

    def __init__(self, capacity: int) -> None:
        super().__init__(capacity)
        self._behind: dict[uuid.UUID, deque[ClaimedMessage]] = {}
        self._instance_of: dict[int, uuid.UUID] = {}

    def put(self, claimed: Sequence[ClaimedMessage], generation: int) -> bool:
        with self._lock:
            if not self._open or self._generation != generation:
                return False
            for one in claimed:
                self._held.add(one.seq)
                if one.task == Task.JOIN_INSTANCE:
                    self._instance_of[one.seq] = one.instance_id
                    if one.instance_id in self._behind:
                        self._behind[one.instance_id].append(one)
                        continue
                    self._behind[one.instance_id] = deque()
                self._waiting.append(one)
            self._arrived.notify(len(claimed))
            return True

    def settle(self, seqs: Sequence[int]) -> None:
        with self._lock:
            for seq in seqs:
                instance_id = self._instance_of.pop(seq, None)
                if instance_id is None:
                    continue
                behind = self._behind[instance_id]
                if behind:
                    self._waiting.append(behind.popleft())
                    self._arrived.notify()
                else:
                    del self._behind[instance_id]
        super().settle(seqs)

    def _forget_behind(self, forgotten: Sequence[ClaimedMessage]) -> list[ClaimedMessage]:
        behind = [one for queue in self._behind.values() for one in queue]
        for one in (*forgotten, *behind):
            self._instance_of.pop(one.seq, None)
        # Those that a thread is working on are still served; what comes for them next has to wait behind it.
        self._behind = {instance_id: deque() for instance_id in self._instance_of.values()}
        return behind
