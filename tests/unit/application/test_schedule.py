"""The schedule of a receive location (ORS-08)."""

from __future__ import annotations

from datetime import UTC, date, datetime
from zoneinfo import ZoneInfo

import pytest

from postroom import Schedule
from postroom.errors import DefinitionError

BERLIN = ZoneInfo("Europe/Berlin")


def parse_time(text: str, zone: ZoneInfo | None = None) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=zone or UTC)


@pytest.mark.parametrize(
    ("schedule", "now", "expected"),
    [
        (Schedule(), "2026-11-16 03:00", True),
        (Schedule(start="2026-11-16"), "2026-11-15 23:59:59", False),
        (Schedule(start="2026-11-16"), "2026-11-16 00:00", True),
        (Schedule(stop="2026-11-16"), "2026-11-16 23:59:59", True),
        (Schedule(stop="2026-11-16"), "2026-11-17 00:00", False),
        (Schedule(window=("08:00", "18:00")), "2026-11-16 07:59:59", False),
        (Schedule(window=("08:00", "18:00")), "2026-11-16 08:00", True),
        (Schedule(window=("08:00", "18:00")), "2026-11-16 18:00", False),
        # A window over midnight belongs to the day on which it starts. The 16th is a Monday.
        (Schedule(window=("22:00", "06:00"), weekdays=["mon"]), "2026-11-16 05:00", False),
        (Schedule(window=("22:00", "06:00"), weekdays=["mon"]), "2026-11-16 22:00", True),
        (Schedule(window=("22:00", "06:00"), weekdays=["mon"]), "2026-11-17 05:59", True),
        (Schedule(window=("22:00", "06:00"), weekdays=["mon"]), "2026-11-17 06:00", False),
        (Schedule(window=("22:00", "06:00"), weekdays=["mon"]), "2026-11-17 23:00", False),
        (Schedule(window=("22:00", "06:00"), stop="2026-11-16"), "2026-11-17 05:00", True),
        (Schedule(weekdays=["mon", "wed"]), "2026-11-18 12:00", True),
        (Schedule(weekdays=["mon", "wed"]), "2026-11-17 12:00", False),
        (Schedule(start="2026-11-14", every_days=2), "2026-11-16 12:00", True),
        (Schedule(start="2026-11-14", every_days=2), "2026-11-17 12:00", False),
        (Schedule(every_days=1), "2026-11-17 12:00", True),
        (Schedule(month_days=[15, -1]), "2026-11-30 12:00", True),
        (Schedule(month_days=[15, -1]), "2026-02-28 12:00", True),
        (Schedule(month_days=[15, -1]), "2028-02-28 12:00", False),
        (Schedule(month_days=[15, -1]), "2026-11-15 12:00", True),
        (Schedule(month_days=[31]), "2026-11-30 12:00", False),
        (Schedule(month_weekdays=[("first", "mon")]), "2026-11-02 12:00", True),
        (Schedule(month_weekdays=[("first", "mon")]), "2026-11-09 12:00", False),
        (Schedule(month_weekdays=[("last", "mon"), ("second", "tue")]), "2026-11-30 12:00", True),
        (Schedule(month_weekdays=[("last", "mon"), ("second", "tue")]), "2026-11-10 12:00", True),
        (Schedule(month_weekdays=[("last", "mon")]), "2026-11-23 12:00", False),
        (Schedule(months=[1, 4], month_days=[1]), "2026-04-01 12:00", True),
        (Schedule(months=[1, 4], month_days=[1]), "2026-05-01 12:00", False),
    ],
)
def test_a_location_is_open_only_at_its_times(schedule: Schedule, now: str, expected: bool) -> None:
    assert schedule.is_open(parse_time(now)) is expected


def test_days_and_times_are_in_the_time_zone_of_the_schedule() -> None:
    schedule = Schedule(window=("08:00", "18:00"), weekdays=["mon"], zone="Europe/Berlin")
    assert schedule.is_open(parse_time("2026-11-16 07:00"))
    assert not schedule.is_open(parse_time("2026-11-16 17:00"))
    # With daylight saving time, an hour earlier in UTC.
    assert schedule.is_open(parse_time("2026-07-13 06:00"))
    assert not schedule.is_open(parse_time("2026-07-13 16:00"))


@pytest.mark.parametrize(
    ("schedule", "now", "opens"),
    [
        (Schedule(window=("08:00", "18:00"), zone="Europe/Berlin"), parse_time("2026-11-16 03:00"), "2026-11-16 08:00"),
        (Schedule(window=("08:00", "18:00"), zone="Europe/Berlin"), parse_time("2026-11-16 18:00"), "2026-11-17 08:00"),
        (Schedule(weekdays=["mon"], zone="Europe/Berlin"), parse_time("2026-11-16 12:00"), "2026-11-23 00:00"),
        (Schedule(start="2030-05-05", zone="Europe/Berlin"), parse_time("2026-11-16 12:00"), "2030-05-05 00:00"),
        (
            Schedule(months=[2], month_days=[29], zone="Europe/Berlin"),
            parse_time("2026-11-16 12:00"),
            "2028-02-29 00:00",
        ),
    ],
)
def test_next_opening_returns_the_next_time(schedule: Schedule, now: datetime, opens: str) -> None:
    assert schedule.next_opening(now) == parse_time(opens, BERLIN)


@pytest.mark.parametrize("schedule", [Schedule(stop="2026-11-15"), Schedule(months=[2], month_days=[30])])
def test_next_opening_returns_none_if_the_location_never_opens_again(schedule: Schedule) -> None:
    assert schedule.next_opening(parse_time("2026-11-16 12:00")) is None


@pytest.mark.parametrize(
    ("schedule", "problems"),
    [
        (Schedule(start="2026-11-16", stop="2026-11-15"), ["stop 2026-11-15 is before start 2026-11-16."]),
        (
            Schedule(window=("08:00", "08:00")),
            ["the window starts and ends at 08:00; leave it out for the whole day."],
        ),
        (Schedule(zone="Berlin"), ["there is no time zone 'Berlin'; write something like 'Europe/Berlin'."]),
        (Schedule(zone="../etc"), ["there is no time zone '../etc'; write something like 'Europe/Berlin'."]),
        (
            Schedule(weekdays=["mon"], month_days=[1, 32, 0]),
            [
                "only one of weekdays and month_days may be set; each selects the days.",
                "month_days: 32 is not a day of a month; use 1 to 31, or -1 for the last day.",
                "month_days: 0 is not a day of a month; use 1 to 31, or -1 for the last day.",
            ],
        ),
        (Schedule(every_days=3), ["every_days=3 needs start, the day to count from."]),
        (Schedule(every_days=0, start="2026-01-01"), ["every_days is 0, but must be 1 or more."]),
        (Schedule(months=[13]), ["months: 13 is not a month; use 1 to 12."]),
    ],
)
def test_every_problem_of_a_schedule_is_reported(schedule: Schedule, problems: list[str]) -> None:
    assert list(schedule.problems()) == problems


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"weekdays": ["mon", "tues"]}, "weekdays: 'tues' is not one of 'mon', 'tue', "),
        ({"window": ["08:00"]}, "window: give two times of day, the start and the end."),
        ({"start": "tomorrow"}, "start: 'tomorrow' is not a date; write it like 2026-01-31."),
        ({"window": ("08:00", "25:00")}, "window: '25:00' is not a time of day; write it like 08:00."),
    ],
)
def test_an_invalid_schedule_is_rejected(fields: dict[str, object], expected: str) -> None:
    with pytest.raises(DefinitionError) as error:
        Schedule(**fields)  # type: ignore[arg-type]
    assert error.value.what.startswith(f"The schedule is invalid: {expected}")


def test_a_schedule_can_be_stored_read_and_formatted() -> None:
    schedule = Schedule(
        start=date(2026, 1, 1),
        stop="2026-12-31",
        window=("22:00", "06:30"),
        zone="Europe/Berlin",
        month_weekdays=[("first", "mon"), ("last", "fri")],
        months=[1, 7],
    )
    assert Schedule(**schedule.model_dump(mode="json")) == schedule
    assert str(schedule) == (
        "first mon and last fri, in Jan Jul, 22:00-06:30, from 2026-01-01, until 2026-12-31, Europe/Berlin"
    )
    assert str(Schedule(weekdays=["fri", "mon"])) == "mon fri, UTC"
    assert str(Schedule(month_days=[1, -1])) == "day 1 last, UTC"
    assert str(Schedule(every_days=2, start="2026-01-01")) == "every 2 days, from 2026-01-01, UTC"
