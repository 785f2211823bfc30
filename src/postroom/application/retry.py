"""The retries of a send port, as a user declares them."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, ValidationError

from postroom.errors import DefinitionError
from postroom.stored_definitions import wrong_fields

_MAX_RETRIES = 1_000
_MAX_INTERVAL = timedelta(minutes=525_600).total_seconds()


class Retry(BaseModel):
    """How often a failed send is tried again, and after how many seconds: ``Retry(count=5, interval=60)`` (SND-04)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    count: int = 3
    interval: float = 300.0

    def __init__(self, *, count: int = 3, interval: float | timedelta = 300.0) -> None:
        seconds = interval.total_seconds() if isinstance(interval, timedelta) else interval
        try:
            super().__init__(count=count, interval=seconds)
        except ValidationError as error:
            raise DefinitionError(f"Retry cannot be created from these arguments: {wrong_fields(error)}.") from None

    def problems(self) -> list[str]:
        """Describe each value that is out of range."""
        found = []
        if not 0 <= self.count <= _MAX_RETRIES:
            found.append(f"retry: count is {self.count}, but must be between 0 and {_MAX_RETRIES:,}.")
        if not 0 <= self.interval <= _MAX_INTERVAL:
            found.append(
                f"retry: interval is {self.interval:g} seconds, but must be between 0 and {_MAX_INTERVAL:,.0f}."
            )
        return found
