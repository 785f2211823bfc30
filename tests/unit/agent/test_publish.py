"""The steps of a publish and their order."""

from __future__ import annotations

from collections.abc import Collection
from types import SimpleNamespace
from typing import Any, cast

import pytest

from postroom.agent.publish import PublishBatch, publish
from postroom.agent.routing.routes import OrderedRoutes
from postroom.errors import StaleRouting
from postroom.messagebox.connection import Connection
from postroom.messagebox.routing import RoutingLock

_VERSION = 7


class RecordingBatch(PublishBatch):
    """Records the steps that are called. ``ends_with`` is the step that leaves nothing to do."""

    hosts: Collection[str] = ()

    def __init__(self, *, ends_with: str = "", version: int = _VERSION) -> None:
        self.steps: list[str] = []
        self._ends_with = ends_with
        self._version = version

    def prepare(self, connection: Connection) -> bool:
        self.steps.append("prepare")
        return self._ends_with != "prepare"

    def match(self, connection: Connection) -> int | None:
        self.steps.append("match")
        return None if self._ends_with == "match" else self._version

    def insert_receipts(self, connection: Connection) -> None:
        self.steps.append("insert_receipts")

    def insert_in_one_statement(self, connection: Connection) -> bool:
        self.steps.append("insert")
        return self._ends_with == "insert"

    def write_messages(self, connection: Connection) -> None:
        self.steps.append("write_messages")

    def write_routes(self, connection: Connection, lock: RoutingLock, ordered: OrderedRoutes) -> None:
        self.steps.append(f"write_routes under version {lock.version}")


@pytest.fixture
def connection() -> Connection:
    """A connection that answers every query with the current routing version."""
    row = (_VERSION, 1, 1, False)
    answer = SimpleNamespace(fetchone=lambda: row)
    return cast(Connection, SimpleNamespace(execute=lambda *_: cast(Any, answer)))


def test_receipts_are_inserted_after_the_match_and_before_the_messages(connection: Connection) -> None:
    batch = RecordingBatch()
    publish(connection, batch)
    assert batch.steps == [
        "prepare",
        "match",
        "insert_receipts",
        "insert",
        "write_messages",
        "write_routes under version 7",
    ]


@pytest.mark.parametrize(
    ("ends_with", "steps"),
    [
        ("prepare", ["prepare"]),
        ("match", ["prepare", "match"]),
        ("insert", ["prepare", "match", "insert_receipts", "insert"]),
    ],
)
def test_no_step_follows_the_one_that_leaves_nothing_to_do(
    ends_with: str, steps: list[str], connection: Connection
) -> None:
    batch = RecordingBatch(ends_with=ends_with)
    publish(connection, batch)
    assert batch.steps == steps


def test_no_queue_row_is_written_if_the_subscriptions_changed(connection: Connection) -> None:
    batch = RecordingBatch(version=_VERSION - 1)
    with pytest.raises(StaleRouting):
        publish(connection, batch)
    assert batch.steps[-1] == "write_messages"
