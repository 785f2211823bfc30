"""Memory while a file of 1 GB is decompressed on its way, as in group A for one that passes unread."""

from __future__ import annotations

from bench.memory import growth_with
from bench.ratios import Result


def measure() -> Result:
    """The most that one process grew, in MB of its unique set."""
    name = "growth of any process while 1 GB of content passes through that came as gzip, in MB"
    return growth_with("gz", name=name, group="C")
