"""When a failed send is tried again."""

from __future__ import annotations

from datetime import timedelta

from pydantic import BaseModel, ConfigDict, ValidationError

from postroom.errors import DefinitionError
from postroom.stored_definitions import wrong_fields

_MOST_RETRIES = 1_000
_LONGEST_INTERVAL = timedelta(minutes=525_600).total_seconds()


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
            raise DefinitionError(f"Retry cannot be made from these arguments: {wrong_fields(error)}.") from None

    def problems(self) -> list[str]:
        found = []
        if not 0 <= self.count <= _MOST_RETRIES:
            found.append(f"retry: count is {self.count}, but must be between 0 and {_MOST_RETRIES:,}.")
        if not 0 <= self.interval <= _LONGEST_INTERVAL:
            found.append(
                f"retry: interval is {self.interval:g} seconds, but must be between 0 and {_LONGEST_INTERVAL:,.0f}."
            )
        return found
