"""The streaming lane against COPY, as in group A, with the bar of the whole pipeline."""

from __future__ import annotations

from bench.ratios import Result
from bench.streaming import against_copy


def measure() -> Result:
    """Messages a second through the stream over those of the bare COPY."""
    return against_copy(group="C", bar=0.7)
