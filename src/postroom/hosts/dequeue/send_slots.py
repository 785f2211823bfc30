"""The messages of services with a limit, such as HTTP ports: those that are being sent, and those that wait for a slot.

A message keeps its slot from the time when a thread takes it until its outcome is known. In between it may wait for its
receiver without a thread. So that a few dead receivers do not keep the others from sending, a service gets only a part
of what all services together leave free: the more services wait, the less each of them has.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Collection

from postroom.messagebox.queues import ClaimedMessage

#: A service may have this many times as many slots as are free.
_SHARE = 4


class SendSlots:
    """The slots of a work buffer, which holds its lock during each call except ``has_slot``."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._taken = 0
        self._counts: Counter[bytes | None] = Counter()
        # By the identity of the message, because another claim of the same message may be in progress after a pause.
        self._owners: set[int] = set()
        self._limits: dict[bytes | None, int] = {}
        self._held: defaultdict[bytes | None, deque[ClaimedMessage]] = defaultdict(deque)
        #: The number of messages that wait for a slot.
        self.held_count = 0

    def acquire(self, message: ClaimedMessage, limit: int) -> bool:
        """Give the message a slot of its service. Return False if there is none."""
        self._limits[message.service] = limit
        if self._find_free(message.service) <= 0:
            return False
        self._counts[message.service] += 1
        self._taken += 1
        self._owners.add(id(message))
        return True

    def _find_free(self, service: bytes | None) -> int:
        """Return how many more slots the service may have. It always has one."""
        limit = min(self._limits[service], _SHARE * (self._total - self._taken))
        return max(1, limit) - self._counts[service]

    def hold(self, message: ClaimedMessage) -> None:
        """Let the message wait for a slot of its service."""
        self._held[message.service].append(message)
        self.held_count += 1

    def has_slot(self, message: ClaimedMessage) -> bool:
        return id(message) in self._owners

    def release(self, message: ClaimedMessage) -> list[ClaimedMessage]:
        """Take the slot of the message back. Return the messages of its service that may be taken now."""
        service = message.service
        self._owners.remove(id(message))
        self._taken -= 1
        self._counts[service] -= 1
        held = self._held.get(service, ())
        following = [held.popleft() for _ in range(min(len(held), self._find_free(service)))] if held else []
        self.held_count -= len(following)
        if not held:
            self._held.pop(service, None)
        if not self._counts[service]:
            del self._counts[service], self._limits[service]
        return following

    @property
    def held_services(self) -> Collection[bytes | None]:
        """The services whose messages wait for a slot."""
        return self._held.keys()

    def count_held(self, service: bytes | None) -> int:
        return len(self._held.get(service, ()))

    def drop_held(self) -> list[ClaimedMessage]:
        """Forget the messages that wait for a slot, and return them."""
        dropped = [message for held in self._held.values() for message in held]
        self._held.clear()
        self.held_count = 0
        return dropped
