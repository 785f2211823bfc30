"""The routing table is loaded in portions. Afterwards it reads only the changed subscriptions."""

from __future__ import annotations

from typing import Any

import pytest

from postroom.agent.routing import table as routing
from postroom.agent.routing.batch_matches import WaitingSubscribers, match_batch
from postroom.agent.routing.matching import IndexMatcher
from postroom.agent.routing.table import RoutingTable
from postroom.errors import StaleRouting
from postroom.filters.columns import build_columns
from postroom.message import Message
from postroom.messagebox.connection import Connection
from postroom.operations.ports import send_ports
from tests.support.box import Box, Region


def match_names(table: RoutingTable, region: str) -> list[str]:
    return [
        table.subscribers[subscription_id].service_name for subscription_id in table.match_one({Region.key: region})
    ]


def test_a_table_is_loaded_in_portions_and_reads_only_changes_afterwards(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(routing, "FILTERS_PER_READ", 2)
    read: list[list[int]] = []
    read_filters = routing.read_filters

    def record_ids(connection: Connection, ids: list[int], *rest: object) -> object:
        read.append(ids)
        return read_filters(connection, ids, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(routing, "read_filters", record_ids)
    for number in range(5):
        box.add_port(f"port {number}", "Orders.Region == 'EU'")
    table = RoutingTable()
    table.catch_up(box.connection)
    assert [len(ids) for ids in read] == [2, 2, 1]
    assert match_names(table, "EU") == [f"port {number}" for number in range(5)]

    read.clear()
    for number in range(5, 8):
        box.add_port(f"port {number}", "Orders.Region == 'US'")
    send_ports.stop(box.connection, "port 1")
    send_ports.unenlist(box.connection, "port 2")
    table.catch_up(box.connection)
    # For a stopped port only its state is read again, not its filter.
    assert [len(ids) for ids in read] == [2, 1]
    assert match_names(table, "EU") == ["port 0", "port 1", "port 3", "port 4"]
    assert match_names(table, "US") == ["port 5", "port 6", "port 7"]
    assert not next(
        subscriber for subscriber in table.subscribers.values() if subscriber.service_name == "port 1"
    ).started


def test_a_failed_catch_up_leaves_the_table_unchanged(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "FILTERS_PER_READ", 1)
    box.add_port("first", "Orders.Region == 'EU'")
    table = RoutingTable()
    table.catch_up(box.connection)
    version = table.version
    box.add_port("second", "Orders.Region == 'EU'")
    box.add_port("third", "Orders.Region == 'EU'")
    send_ports.unenlist(box.connection, "first")
    read_filters, calls = routing.read_filters, iter(range(10))

    def fail_on_second_call(*arguments: object) -> object:
        if next(calls) == 1:
            raise ConnectionError("the server is gone")
        return read_filters(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(routing, "read_filters", fail_on_second_call)
    with pytest.raises(ConnectionError):
        table.catch_up(box.connection)
    assert (table.version, match_names(table, "EU")) == (version, ["first"])
    table.catch_up(box.connection)
    assert match_names(table, "EU") == ["second", "third"]


@pytest.fixture
def table(box: Box) -> RoutingTable:
    """A table with one subscription."""
    box.add_port("first", "Orders.Region == 'EU'")
    table = RoutingTable()
    table.catch_up(box.connection)
    return table


def test_a_table_that_another_thread_changes_while_a_batch_is_matched_makes_the_batch_stale(
    box: Box, table: RoutingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = WaitingSubscribers.find

    def find_while_the_table_changes(*arguments: Any) -> WaitingSubscribers:
        box.add_port("second", "Orders.Region == 'EU'")
        table.catch_up(box.connection)
        return find(*arguments)

    monkeypatch.setattr(WaitingSubscribers, "find", find_while_the_table_changes)
    with pytest.raises(StaleRouting):
        match_batch(box.connection, table, {Region.key: "EU"}, 1, [frozenset()], version=table.version)


def test_a_table_that_another_thread_changes_while_the_values_are_read_makes_the_batch_stale(
    box: Box, table: RoutingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of properties that are not deployed are left out. One may be deployed just then."""

    def build_before_the_table_changes(*arguments: Any) -> Any:
        columns = build_columns(*arguments)
        box.add_port("second", "Orders.Region == 'US'")
        table.catch_up(box.connection)
        return columns

    monkeypatch.setattr("postroom.agent.routing.matching.build_columns", build_before_the_table_changes)
    messages = [Message.of(b"", promoted={Region: region}) for region in ("EU", "US")]
    with pytest.raises(StaleRouting):
        IndexMatcher(table).match(box.connection, messages)


def test_the_matches_of_a_batch_stay_when_the_table_changes(box: Box, table: RoutingTable) -> None:
    matches = match_batch(box.connection, table, {Region.key: "EU"}, 1, [frozenset()], version=table.version)
    send_ports.stop(box.connection, "first")
    send_ports.unenlist(box.connection, "first")
    table.catch_up(box.connection)
    assert not table.subscribers
    assert [matches.subscribers[one].service_name for one in matches.subscription_ids.tolist()] == ["first"]
