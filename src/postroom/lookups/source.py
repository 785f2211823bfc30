"""Where a process reads lookups: in the MessageBox that it works for, or in a test.

Components, maps and orchestrations run in the threads of hosts and of Spark workers, and are called without anything
that knows the MessageBox. So this is state of the process: it is set by whoever starts to work for a MessageBox.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Protocol

from postroom.errors import StateError
from postroom.message import Message


class LookupSource(Protocol):
    """Returns entries of lookups. It is called from many threads."""

    def get(self, name: str, key: object) -> Message | None: ...


@lru_cache(maxsize=1)
def _sources() -> list[LookupSource]:
    """The sources of this process. The last one is used."""
    return []


def add_source(source: LookupSource) -> None:
    """Let this process read lookups from here."""
    _sources().append(source)


def remove_source(source: LookupSource) -> None:
    """The inverse of ``add_source``."""
    if source in _sources():
        _sources().remove(source)


@contextmanager
def use_source(source: LookupSource) -> Iterator[None]:
    """Inside, this process reads lookups from here."""
    add_source(source)
    try:
        yield
    finally:
        remove_source(source)


def get_source() -> LookupSource:
    """Return the source of this process. Raise StateError if there is none."""
    try:
        return _sources()[-1]
    except IndexError:
        raise StateError(
            "There is no MessageBox here to read lookups from.",
            why="A lookup is read inside a component, a map or an orchestration that a host or a pipeline runs.",
            hint="In a program call client.lookup(NAME).get(KEY). In a test give the entries: "
            "with testing.lookups({NAME: {KEY: MESSAGE}}): ...",
        ) from None
