"""A schedule as it is typed on a command line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from postroom.application import Schedule
from postroom.errors import DefinitionError


def schedule_from(said: Mapping[str, str | int]) -> Schedule:
    """The schedule that these fields say: lists with commas, a window with a dash. DefinitionError if they do not."""
    fields: dict[str, Any] = dict(said)
    if "window" in said:
        fields["window"] = [one.strip() for one in str(said["window"]).split("-")]
    if "weekdays" in said:
        fields["weekdays"] = _listed(said["weekdays"])
    if "month_weekdays" in said:
        fields["month_weekdays"] = [one.split() for one in _listed(said["month_weekdays"])]
    for name in ("month_days", "months"):
        if name in said:
            fields[name] = [-1 if one == "last" else _number(name, one) for one in _listed(said[name])]
    return Schedule(**fields)


def _listed(said: str | int) -> list[str]:
    return [one.strip() for one in str(said).lower().split(",")]


def _number(field: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise DefinitionError(f"{field}: {text!r} is no number.", hint="Write something like 1,15.") from None
