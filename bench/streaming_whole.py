"""The streaming lane against COPY, as in group A, with the target of group C."""

from __future__ import annotations

from bench.ratios import Result
from bench.streaming import measure_against_copy


def measure() -> Result:
    """Return messages/s of the stream over messages/s of the bare COPY."""
    return measure_against_copy(group="C", bar=0.7)
