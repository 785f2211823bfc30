"""Throttling: the thresholds of hosts, and how much a host slows down while its load exceeds them."""

from __future__ import annotations

from postroom.throttling.definition import (
    Override,
    OverrideMode,
    Overrides,
    Throttling,
    load_overrides,
    load_throttling,
)

__all__ = ["Override", "OverrideMode", "Overrides", "Throttling", "load_overrides", "load_throttling"]
