"""The routing table is loaded in portions. Afterwards it reads only the changed subscriptions."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest

from postroom.agent.routing import table as routing
from postroom.agent.routing.batch_matches import match_batch
from postroom.agent.routing.matching import IndexMatcher
from postroom.agent.routing.table import Routing, RoutingTable
from postroom.filters.columns import build_columns
from postroom.message import Message
from postroom.messagebox.connection import Connection, connect
from postroom.operations.ports import send_ports
from tests.support.box import Box, Region


def match_names(routing: Routing, region: str) -> list[str]:
    ids = routing.index.match_one({Region.key: region})
    return [routing.subscribers[subscription_id].service_name for subscription_id in ids]


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
    before = table.catch_up(box.connection)
    assert [len(ids) for ids in read] == [2, 2, 1]
    assert match_names(before, "EU") == [f"port {number}" for number in range(5)]

    read.clear()
    for number in range(5, 8):
        box.add_port(f"port {number}", "Orders.Region == 'US'")
    send_ports.stop(box.connection, "port 1")
    send_ports.unenlist(box.connection, "port 2")
    changed = table.catch_up(box.connection)
    # For a stopped port only its state is read again, not its filter.
    assert [len(ids) for ids in read] == [2, 1]
    assert match_names(changed, "EU") == ["port 0", "port 1", "port 3", "port 4"]
    assert match_names(changed, "US") == ["port 5", "port 6", "port 7"]
    assert not next(
        subscriber for subscriber in changed.subscribers.values() if subscriber.service_name == "port 1"
    ).started


def test_a_failed_catch_up_leaves_the_table_unchanged(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routing, "FILTERS_PER_READ", 1)
    box.add_port("first", "Orders.Region == 'EU'")
    table = RoutingTable()
    before = table.catch_up(box.connection)
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
    assert table.load(box.connection) is before
    assert match_names(before, "EU") == ["first"]
    assert match_names(table.catch_up(box.connection), "EU") == ["second", "third"]


@pytest.fixture
def table(box: Box) -> RoutingTable:
    """A table with one subscription."""
    box.add_port("first", "Orders.Region == 'EU'")
    table = RoutingTable()
    table.catch_up(box.connection)
    return table


def test_a_batch_is_matched_at_one_version_while_another_thread_changes_the_table(
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
    before = table.load(box.connection)
    matches = IndexMatcher(before).match(box.connection, messages)
    assert (matches.version, matches.rows.tolist()) == (before.version, [0])
    assert match_names(table.load(box.connection), "US") == ["second"]


def test_the_matches_of_a_batch_stay_when_the_table_changes(box: Box, table: RoutingTable) -> None:
    before = table.load(box.connection)
    matches = match_batch(box.connection, before, {Region.key: "EU"}, 1, [frozenset()])
    send_ports.stop(box.connection, "first")
    send_ports.unenlist(box.connection, "first")
    assert not table.catch_up(box.connection).subscribers
    assert [matches.subscribers[one].service_name for one in matches.subscription_ids.tolist()] == ["first"]
    assert match_names(before, "EU") == ["first"]


def test_threads_that_share_a_table_read_each_change_once(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[tuple[object, ...]] = []
    read_filters = routing.read_filters

    def record_call(*arguments: Any) -> object:
        read.append(arguments)
        return read_filters(*arguments)

    monkeypatch.setattr(routing, "read_filters", record_call)
    box.add_port("first", "Orders.Region == 'EU'")
    table, start = RoutingTable(), threading.Barrier(4)

    def load(connection: Connection) -> Routing:
        start.wait()
        return table.load(connection)

    with ExitStack() as stack:
        connections = [stack.enter_context(connect(box.url)) for _ in range(4)]
        threads = stack.enter_context(ThreadPoolExecutor(4))
        assert len({id(one) for one in threads.map(load, connections)}) == 1
    assert len(read) == 1
