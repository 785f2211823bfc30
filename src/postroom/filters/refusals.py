"""Lets a whole file of filters be read although one comparison in it is wrong, so that all that are can be told."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from postroom.errors import BadFilter

_tell: ContextVar[Callable[[BadFilter], None] | None] = ContextVar("tell", default=None)


@contextmanager
def collecting(tell: Callable[[BadFilter], None]) -> Iterator[None]:
    """Inside, a wrong comparison is told to ``tell``, and some filter stands in for it, instead of being raised.

    Whoever collects must refuse what was read if anything was told.
    """
    token = _tell.set(tell)
    try:
        yield
    finally:
        _tell.reset(token)


def told(error: BadFilter) -> bool:
    """Tells of the error if somebody is collecting."""
    tell = _tell.get()
    if tell is not None:
        tell(error)
    return tell is not None
