"""A lookup as its readers see it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import partial

from postroom.lookups.source import LookupSource, get_source
from postroom.message import Message
from postroom.orchestrations.execution import find_execution


@dataclass(frozen=True)
class Lookup:
    """A lookup, by its name. ``app.lookup`` declares it and returns it. Elsewhere ``postroom.lookup`` names it.

    Customers = lookup("Customers")
    customer = Customers.get("C-17")
    """

    name: str
    _source: LookupSource | None = field(default=None, repr=False, compare=False)
    """Where to read. None: where this process reads lookups."""

    def get(self, key: object) -> Message | None:
        """Return the newest message with this key, with its context and its body part. Return None if there is none, or
        if it was deleted. It is at most a second old.

        In an orchestration the answer is recorded in the journal, so that a replay gets the same one. Raise NotFound if
        there is no such lookup, and BadValue if the key has another type than its property."""
        execution = find_execution()
        if execution is None:
            return self._read(key)
        # The digest: keys may be confidential, and journals are shown.
        digest = hashlib.blake2b(f"{type(key).__name__} {key!r}".encode(), digest_size=8).hexdigest()
        return execution.look_up(self.name, digest, partial(self._read, key))

    def _read(self, key: object) -> Message | None:
        source = get_source() if self._source is None else self._source
        return source.get(self.name, key)


def lookup(name: str) -> Lookup:
    """Return the lookup with this name, which any application may declare: ``lookup("Customers").get("C-17")``."""
    return Lookup(name)
