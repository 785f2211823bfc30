"""Lines of a long run, each with the seconds since its start."""

from __future__ import annotations

import sys
import time


class RunLog:
    def __init__(self) -> None:
        self._started = time.monotonic()

    def print(self, text: str) -> None:
        sys.stdout.write(f"{time.monotonic() - self._started:6.1f} s  {text}\n")
        sys.stdout.flush()
