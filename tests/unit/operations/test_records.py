"""The records of operations as JSON."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from postroom.filters.explain import Reason
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.instances import InstanceState
from postroom.messagebox.queues import Cause
from postroom.operations.records import FLAT, extend, to_json, to_row


@dataclass(frozen=True, kw_only=True)
class Inner:
    name: str


@dataclass(frozen=True, kw_only=True)
class Outer:
    inner: Inner
    others: tuple[Inner, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Extended(Outer):
    number: int


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (ServiceState.STARTED, "started"),
        (InstanceState.SUSPENDED_NOT_RESUMABLE, "suspended, not resumable"),
        (Cause.ROUTING_FAILURE_REPORT, "routing failure report"),
        (Reason.TYPE_DIFFERS, "type differs"),
        ({Reason.HOLDS: 1}, {"holds": 1}),
        (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        (datetime(2026, 1, 31, tzinfo=UTC), "2026-01-31T00:00:00+00:00"),
        (Decimal("1.10"), "1.10"),
        (Path("out/europe"), "out/europe"),
        (b"abc", "abc"),
        ({"b", "a"}, ["a", "b"]),
        ((1, None, True), [1, None, True]),
        (Outer(inner=Inner(name="a"), others=(Inner(name="b"),)), {"inner": {"name": "a"}, "others": [{"name": "b"}]}),
    ],
)
def test_every_value_of_a_record_has_one_form_in_json(value: object, expected: Any) -> None:
    assert json.loads(to_json([value])) == [expected]


def test_an_extended_record_has_the_fields_of_both() -> None:
    record = extend(Outer(inner=Inner(name="a")), Extended, number=3)
    assert record == Extended(inner=Inner(name="a"), number=3)
    assert to_row(record) == {"inner": Inner(name="a"), "others": (), "number": 3}


def test_the_keys_of_a_flat_field_are_keys_of_the_record() -> None:
    @dataclass(frozen=True, kw_only=True)
    class Port:
        name: str
        settings: dict[str, int] = field(metadata=FLAT)

    assert to_row(Port(name="Europe", settings={"priority": 5})) == {"name": "Europe", "priority": 5}
