"""Stores what became of messages that were sent, even if the MessageBox is unavailable for a moment."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from postroom.errors import Unavailable
from postroom.processes.backoff import Backoff

_BACKOFF = Backoff(first=0.1, longest=5.0)
_RETRIES = 8

T = TypeVar("T")


def retry_while_unavailable(store: Callable[[], T]) -> T:
    """Return what ``store`` returns. A MessageBox that is unavailable is tried again for some seconds, because a retry
    of the message would send it again."""
    failures = 0
    while True:
        try:
            return store()
        except Unavailable:
            failures += 1
            if failures > _RETRIES:
                raise
            time.sleep(_BACKOFF.delay(failures))
