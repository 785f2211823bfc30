"""The throttling thresholds of a host, as a user declares them, and an operator's override."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from pydantic import Field

from postroom.stored_definitions import DeclaredValue, Seconds

_MAX_COUNT = 1_000_000_000
_MAX_DELAY = 86_400.0
_RANGES: Mapping[str, float] = {
    "messages": _MAX_COUNT,
    "spool_multiplier": _MAX_COUNT,
    "longest_delay": _MAX_DELAY,
    "overdrive": 10_000,
    "in_process": _MAX_COUNT,
    "process_memory": 100,
    "system_memory": 100,
    "threads": _MAX_COUNT,
    "sessions": _MAX_COUNT,
}


class Throttling(DeclaredValue):
    """When a host slows down: ``Throttling(messages=200_000, longest_delay=60)`` (THR-01 to THR-07).

    Publishing slows down above ``messages`` in the queues of subscribers, and above ``spool_multiplier`` times as many
    in the spool. Batches are smaller and the next one waits: the more messages, the longer, up to ``longest_delay``
    seconds. Above half of ``messages``, it is delayed while more than ``overdrive`` percent of the messages that leave
    the queues come in. ``messages=0``: none of this. ``spool_multiplier=0``: no threshold for the spool.

    Delivery slows down above ``in_process`` messages in memory for each processor, and by ``overdrive`` too. Both slow
    down in a process that uses more than ``process_memory`` percent of the machine's memory, while all processes
    together use more than ``system_memory`` percent, or above ``threads`` threads for each processor. Publishing slows
    down above ``sessions`` sessions of the database. A threshold of 0 is not checked.
    """

    messages: int = 50_000
    spool_multiplier: float = 10.0
    longest_delay: Seconds = Field(default=300.0, validate_default=True)
    overdrive: float = 125.0
    in_process: int = 1_000
    process_memory: float = 25.0
    system_memory: float = 0.0
    threads: int = 0
    sessions: int = 0

    def problems(self) -> list[str]:
        """Describe each value that is out of range."""
        return [
            f"throttling: {name} is {getattr(self, name):g}, but must be between 0 and {maximum:,.0f}."
            for name, maximum in _RANGES.items()
            if not 0 <= getattr(self, name) <= maximum
        ]

    def __str__(self) -> str:
        texts = ["never by the size of the MessageBox"]
        if self.messages:
            spool = f", {self.spool_multiplier:g} times that in the spool" if self.spool_multiplier else ""
            texts = [f"above {self.messages:,} messages{spool}, up to {self.longest_delay:g} s"]
        texts += [
            f"{name}={getattr(self, name):g}"
            for name in ("overdrive", "in_process", "process_memory", "system_memory", "threads", "sessions")
            if getattr(self, name) != Throttling.model_fields[name].default
        ]
        return ", ".join(texts)


def load_throttling(stored: Mapping[str, Any]) -> Throttling:
    """Return the stored thresholds of a host. A threshold that only a later version knows is not checked here."""
    return Throttling(**{name: value for name, value in stored.items() if name in _RANGES})


class OverrideMode(StrEnum):
    """What an operator has decided about the throttling of a host (THR-08)."""

    AUTO = "auto"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, kw_only=True)
class Override:
    """An override of the throttling of a host. ``severity`` is from 1 to 1,000, and counts with ``ALWAYS`` only."""

    mode: OverrideMode = OverrideMode.AUTO
    severity: int = 100

    def __str__(self) -> str:
        return f"always, severity {self.severity}" if self.mode is OverrideMode.ALWAYS else self.mode.value


@dataclass(frozen=True, kw_only=True)
class Overrides:
    """The overrides of a host."""

    publishing: Override = field(default_factory=Override)
    delivery: Override = field(default_factory=Override)


def load_overrides(stored: Mapping[str, Any]) -> Overrides:
    """Return the stored overrides of a host."""
    return Overrides(
        **{
            direction: Override(mode=OverrideMode(override["mode"]), severity=override["severity"])
            for direction, override in stored.items()
        }
    )
