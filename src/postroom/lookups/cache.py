"""The cache of a process for the entries of lookups.

Every half a second the cache asks which keys have changed since it asked last, and forgets them. It asks when it is
used, so that an idle process does nothing. It has no notification that could be lost: an answer is never older than
the time between two questions.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

from postroom.errors import NotFound
from postroom.message import Message
from postroom.messagebox.connection import Connect, Connection, LazyConnection
from postroom.messagebox.lookups import LookupState, read_lookup, read_lookup_entry
from postroom.messagebox.storage.stored_values import value_key
from postroom.properties import Property
from postroom.values import ValueType

#: How long the cache does not ask again which keys have changed.
FRESH_SECONDS = 0.5
#: The number of entries in memory, and the bytes of their bodies.
MAX_ENTRIES, MAX_BYTES = 10_000, 32 * 1024 * 1024

_Key = tuple[int, str]


@dataclass(kw_only=True)
class _Known:
    """A lookup as the cache has seen it."""

    state: LookupState
    key: Property
    checked_at: float


class LookupCache:
    """Reads lookups over one connection, and keeps entries in memory. It is safe for threads: one of them reads, and
    the others wait for it."""

    def __init__(
        self,
        connect: Connect,
        *,
        max_entries: int = MAX_ENTRIES,
        max_bytes: int = MAX_BYTES,
        get_time: Callable[[], float] = time.monotonic,
    ) -> None:
        self._connection = LazyConnection(connect)
        self._max_entries = max_entries
        self._max_bytes = max_bytes
        self._get_time = get_time
        self._lock = threading.Lock()
        self._lookups: dict[str, _Known] = {}
        # The entries that were used last are at the end. None: there is no entry with this key.
        self._entries: OrderedDict[_Key, Message | None] = OrderedDict()
        self._size = 0

    def get(self, name: str, key: object) -> Message | None:
        """Return the entry of a lookup. Raise NotFound if there is no such lookup, BadValue if the key has another type
        than its property, and MessageBoxUnavailable."""
        with self._lock:
            try:
                known = self._refresh(name)
                entry_key = known.state.lookup_id, value_key(known.key.check(key))
                if entry_key in self._entries:
                    self._entries.move_to_end(entry_key)
                    return self._entries[entry_key]
                entry = read_lookup_entry(self._get_connection(), *entry_key)
            except NotFound:
                raise
            except BaseException as error:
                # A thread that was interrupted may leave its connection in the middle of an answer.
                if not isinstance(error, Exception):
                    self._connection.close()
                raise
            self._add(entry_key, entry)
            return entry

    def close(self) -> None:
        with self._lock:
            self._connection.close()

    def _get_connection(self) -> Connection:
        return self._connection.get_working()

    def _refresh(self, name: str) -> _Known:
        """Return a lookup, and forget what has changed if the last time that it was asked is too long ago."""
        known, now = self._lookups.get(name), self._get_time()
        if known is not None and now - known.checked_at < FRESH_SECONDS:
            return known
        state = read_lookup(
            self._get_connection(),
            name,
            known_id=0 if known is None else known.state.lookup_id,
            known_version=0 if known is None else known.state.version,
        )
        if state is None:
            self._forget(name)
            raise NotFound(
                f"There is no lookup {name!r}.",
                hint="Apply the application that declares it, or correct the name. See 'postroom lookup list'.",
            )
        if state.changed is None:
            self._forget(name)
        else:
            for changed in state.changed:
                self._remove((state.lookup_id, changed))
        key = Property.from_key(state.key_property, ValueType(state.key_type))
        # The time before the question: changes after it are not in the answer.
        found = self._lookups[name] = _Known(state=state, key=key, checked_at=now)
        return found

    def _forget(self, name: str) -> None:
        """Forget all entries of a lookup."""
        known = self._lookups.pop(name, None)
        if known is not None:
            for entry_key in [each for each in self._entries if each[0] == known.state.lookup_id]:
                self._remove(entry_key)

    def _add(self, entry_key: _Key, entry: Message | None) -> None:
        self._entries[entry_key] = entry
        self._size += _measure(entry)
        while self._entries and (len(self._entries) > self._max_entries or self._size > self._max_bytes):
            self._remove(next(iter(self._entries)))

    def _remove(self, entry_key: _Key) -> None:
        with suppress(KeyError):
            self._size -= _measure(self._entries.pop(entry_key))


def _measure(entry: Message | None) -> int:
    return 0 if entry is None else sum(part.body.size for part in entry.parts)
