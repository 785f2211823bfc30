"""Schedules: the days and times at which a receive location receives messages (ORS-08), or a send port sends them
(SND-10)."""

from __future__ import annotations

import calendar
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from typing import Literal, get_args
from zoneinfo import ZoneInfo

from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from postroom.stored_definitions import Converted, DeclaredValue

Weekday = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
Ordinal = Literal["first", "second", "third", "fourth", "last"]

_WEEKDAYS: tuple[str, ...] = get_args(Weekday)
_ORDINALS: tuple[str, ...] = get_args(Ordinal)
_LONGEST_MONTH = 31

#: How far ahead the next opening is searched: the 29th of February comes within eight years.
_DAYS_AHEAD = 3_000

Day = Converted[date | str | None, date | None]
Window = Converted[Sequence[time | str] | None, tuple[time, time] | None]
Weekdays = Converted[Sequence[str], tuple[Weekday, ...]]
OrdinalWeekdays = Converted[Sequence[Sequence[str]], tuple[tuple[Ordinal, Weekday], ...]]
Numbers = Converted[Sequence[int], tuple[int, ...]]


class Schedule(DeclaredValue):
    """``Schedule(window=("08:00", "18:00"), zone="Europe/Berlin", weekdays=["mon", "fri"])``.

    ``start`` and ``stop`` are the first and the last day. ``window`` is a time of day. A window whose end is before its
    start continues after midnight and belongs to the day on which it starts. Days and times are in ``zone``. One of
    these selects the days: ``every_days=2`` (every second day from ``start`` on), ``weekdays``, ``month_days``
    (``[1, 15, -1]``: the first, the fifteenth and the last) or ``month_weekdays`` (``[("first", "mon")]``). ``months``
    restricts the schedule to some months.
    """

    start: Day = Field(default=None, validate_default=True)
    stop: Day = Field(default=None, validate_default=True)
    window: Window = Field(default=None, validate_default=True)
    zone: str = "UTC"
    every_days: int | None = None
    weekdays: Weekdays = Field(default=(), validate_default=True)
    month_days: Numbers = Field(default=(), validate_default=True)
    month_weekdays: OrdinalWeekdays = Field(default=(), validate_default=True)
    months: Numbers = Field(default=(), validate_default=True)

    @classmethod
    def _describe_error(cls, error: ValidationError) -> str:
        wrong = "; ".join(dict.fromkeys(_format_problem(item) for item in error.errors()))
        return f"The schedule is invalid: {wrong}."

    def problems(self) -> Iterator[str]:
        """Yield the problems, one sentence each."""
        if self.start is not None and self.stop is not None and self.stop < self.start:
            yield f"stop {self.stop} is before start {self.start}."
        if self.window is not None and self.window[0] == self.window[1]:
            yield f"the window starts and ends at {self.window[0]:%H:%M}; leave it out for the whole day."
        try:
            ZoneInfo(self.zone)
        except (KeyError, OSError, ValueError):
            yield f"there is no time zone {self.zone!r}; write something like 'Europe/Berlin'."
        rules = [name for name in ("every_days", "weekdays", "month_days", "month_weekdays") if getattr(self, name)]
        if len(rules) > 1:
            yield f"only one of {' and '.join(rules)} may be set; each selects the days."
        if self.every_days is not None and self.every_days < 1:
            yield f"every_days is {self.every_days}, but must be 1 or more."
        if self.every_days is not None and self.every_days > 1 and self.start is None:
            yield f"every_days={self.every_days} needs start, the day to count from."
        for day in self.month_days:
            if not 1 <= abs(day) <= _LONGEST_MONTH:
                yield f"month_days: {day} is not a day of a month; use 1 to 31, or -1 for the last day."
        for month in self.months:
            if not 1 <= month <= len(calendar.month_name) - 1:
                yield f"months: {month} is not a month; use 1 to 12."

    def is_open(self, now: datetime) -> bool:
        """Return True if messages are received or sent at this time."""
        local = now.astimezone(self._zone)
        if self.window is None:
            return self._counts(local.date())
        begin, end = self.window
        at = local.time()
        if begin < end:
            return begin <= at < end and self._counts(local.date())
        return (at >= begin and self._counts(local.date())) or (
            at < end and self._counts(local.date() - timedelta(days=1))
        )

    def next_opening(self, now: datetime) -> datetime | None:
        """Return the start of the next scheduled day after this time, or None if there is none."""
        begin = time() if self.window is None else self.window[0]
        today = now.astimezone(self._zone).date()
        first = max(today, self.start) if self.start is not None else today
        for day in (first + timedelta(days=ahead) for ahead in range(_DAYS_AHEAD)):
            if self.stop is not None and day > self.stop:
                break
            opens = datetime.combine(day, begin, self._zone)
            if opens.astimezone(UTC) > now and self._counts(day):
                return opens
        return None

    def __str__(self) -> str:
        return ", ".join(self._format_parts())

    def _format_parts(self) -> Iterator[str]:
        if self.every_days:
            yield "every day" if self.every_days == 1 else f"every {self.every_days} days"
        if self.weekdays:
            yield " ".join(sorted(self.weekdays, key=_WEEKDAYS.index))
        if self.month_days:
            yield "day " + " ".join("last" if day == -1 else str(day) for day in self.month_days)
        if self.month_weekdays:
            yield " and ".join(f"{ordinal} {weekday}" for ordinal, weekday in self.month_weekdays)
        if self.months:
            yield "in " + " ".join(calendar.month_abbr[month] for month in self.months)
        if self.window is not None:
            yield f"{self.window[0]:%H:%M}-{self.window[1]:%H:%M}"
        if self.start is not None:
            yield f"from {self.start}"
        if self.stop is not None:
            yield f"until {self.stop}"
        yield self.zone

    @cached_property
    def _zone(self) -> ZoneInfo:
        return ZoneInfo(self.zone)

    def _counts(self, day: date) -> bool:
        if (self.start is not None and day < self.start) or (self.stop is not None and day > self.stop):
            return False
        if self.months and day.month not in self.months:
            return False
        if self.every_days is not None and self.start is not None:
            return (day - self.start).days % self.every_days == 0
        if self.weekdays:
            return _WEEKDAYS[day.weekday()] in self.weekdays
        last = calendar.monthrange(day.year, day.month)[1]
        if self.month_days:
            return day.day in self.month_days or day.day - last - 1 in self.month_days
        if self.month_weekdays:
            return any(
                _WEEKDAYS[day.weekday()] == weekday
                and (day.day + 7 > last if ordinal == "last" else (day.day - 1) // 7 == _ORDINALS.index(ordinal))
                for ordinal, weekday in self.month_weekdays
            )
        return True


def _format_problem(wrong: ErrorDetails) -> str:
    """Format a problem with the arguments of a schedule."""
    field, given = str(wrong["loc"][0]), wrong["input"]
    match wrong["type"].partition("_")[0]:
        case "time":
            return f"{field}: {given!r} is not a time of day; write it like 08:00"
        case "date":
            return f"{field}: {given!r} is not a date; write it like 2026-01-31"
        case "literal":
            return f"{field}: {given!r} is not one of {wrong['ctx']['expected']}"
        case "missing" | "too" if field == "window":
            return "window: give two times of day, the start and the end"
        case _:
            return f"{field}: {wrong['msg']}"
