"""Memory: the growth of any process while a gzip file of 1 GB content is decompressed."""

from __future__ import annotations

from bench.memory import measure_growth
from bench.ratios import Result


def measure() -> Result:
    """Return the highest growth of a process, in MB of its unique set size."""
    name = "growth of any process while 1 GB of content passes through that came as gzip, in MB"
    return measure_growth("gz", name=name, group="C")
