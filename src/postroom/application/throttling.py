"""The throttling thresholds of a host, as a user declares them."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, ValidationError

from postroom.errors import DefinitionError
from postroom.stored_definitions import wrong_fields

_MAX_MESSAGES = 1_000_000_000
_MAX_DELAY = 86_400.0


class Throttling(BaseModel):
    """When the receive locations of a host slow down: ``Throttling(messages=200_000, longest_delay=60)`` (THR-04).

    The thresholds are ``messages`` in the queues of subscribers, and ``spool_multiplier`` times as many in the spool.
    Above one of them, batches are smaller and the next one waits: the more messages, the longer, up to
    ``longest_delay`` seconds. ``messages=0``: no throttling. ``spool_multiplier=0``: no threshold for the spool.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    messages: int = 50_000
    spool_multiplier: float = 10.0
    longest_delay: float = 300.0

    def __init__(
        self, *, messages: int = 50_000, spool_multiplier: float = 10.0, longest_delay: float | timedelta = 300.0
    ) -> None:
        seconds = longest_delay.total_seconds() if isinstance(longest_delay, timedelta) else longest_delay
        try:
            super().__init__(messages=messages, spool_multiplier=spool_multiplier, longest_delay=seconds)
        except ValidationError as error:
            raise DefinitionError(
                f"Throttling cannot be created from these arguments: {wrong_fields(error)}."
            ) from None

    def problems(self) -> list[str]:
        """Describe each value that is out of range."""
        found = []
        for name, value, maximum in (
            ("messages", self.messages, _MAX_MESSAGES),
            ("spool_multiplier", self.spool_multiplier, _MAX_MESSAGES),
            ("longest_delay", self.longest_delay, _MAX_DELAY),
        ):
            if not 0 <= value <= maximum:
                found.append(f"throttling: {name} is {value:g}, but must be between 0 and {maximum:,.0f}.")
        return found

    def __str__(self) -> str:
        if not self.messages:
            return "never"
        spool = f", {self.spool_multiplier:g} times that in the spool" if self.spool_multiplier else ""
        return f"above {self.messages:,} messages{spool}, up to {self.longest_delay:g} s"
