"""Subscriptions in the tables: PRED-01, PRED-03, PRED-09, SUB-08, 09, 21, 23, FLT-10, REF-11."""

from __future__ import annotations

import pytest

from postroom.errors import NotFound, StateError
from postroom.message import Message
from postroom.operations.ports import send_ports as ports
from tests.support.box import Box, Region

PREDICATE_TABLES = {
    "bitwise_and_predicates": "Priority & 4",
    "equals_predicates": "BTS.AckRequired == true and Total > 5",
    "equals_predicates_2nd_pass": "Region == 'EU' and Priority == 1",
    "exists_predicates": "exists(Region)",
    "first_pass_predicates": "Region == 'EU'",
    "greater_than_or_equals_predicates": "Total >= 5",
    "greater_than_predicates": "Total > 5",
    "less_than_or_equals_predicates": "Total <= 5",
    "less_than_predicates": "Total < 5",
    "not_equals_predicates": "Region != 'EU'",
}


def test_each_predicate_is_in_exactly_one_table(box: Box) -> None:
    directed = written = 0
    for number, (table, filter) in enumerate(PREDICATE_TABLES.items()):
        before = box.count_rows(table)
        box.add_port(f"P{number}", filter)
        directed += 1  # every port subscribes to messages with its transport id
        written += filter.count(" and ") + 1
        assert box.count_rows(table) > before
    assert sum(box.count_rows(each) for each in PREDICATE_TABLES) == box.count("predicates") == written + directed


def test_a_port_without_filter_subscribes_only_to_its_transport_id(box: Box) -> None:
    box.add_port("Plain")
    transport = box.one("SELECT transport_id FROM send_ports")
    assert box.one("SELECT filter FROM subscriptions") == f"BTS.SPTransportID == '{transport}'"
    assert box.one("SELECT value_text FROM first_pass_predicates") == str(transport)


def test_decimal_text_for_an_int_property_is_stored_rounded(box: Box) -> None:
    box.add_port("P", "Priority == '9.5'")
    assert box.one("SELECT value_int FROM first_pass_predicates WHERE value_int IS NOT NULL") == 10


def test_each_port_state_allows_its_transitions(box: Box) -> None:
    """SPT-01, SPT-03."""
    box.add_port("P", "Region == 'EU'", state="bound")
    assert box.count_rows("subscriptions") == 0
    for refused in (ports.stop, ports.unenlist):
        with pytest.raises(StateError, match="bound"):
            refused(box.connection, "P")
    ports.enlist(box.connection, "P")
    with pytest.raises(StateError, match="stopped"):
        ports.enlist(box.connection, "P")
    with pytest.raises(StateError, match="stopped"):
        ports.stop(box.connection, "P")
    ports.start(box.connection, "P")
    with pytest.raises(StateError, match="started"):
        ports.start(box.connection, "P")
    ports.stop(box.connection, "P")
    ports.unenlist(box.connection, "P")
    assert box.count("subscriptions") == 0
    with pytest.raises(NotFound, match="There is no send port 'Q'"):
        ports.start(box.connection, "Q")


def test_unenlisting_keeps_queued_messages(box: Box) -> None:
    box.add_port("P", "Region == 'EU'")
    box.agent().publish([Message.of(b"", promoted={Region: "EU"})])
    ports.unenlist(box.connection, "P")
    assert box.queued() == {"P": 1}


def test_a_removed_subscription_matches_no_message_and_is_purged_later(box: Box) -> None:
    box.add_port("P", "Region == 'EU'")
    box.add_port("Q", "exists(Region)")
    ports.unenlist(box.connection, "P")
    assert box.count("predicates") == 4
    [published] = box.agent(warm=False).publish([Message.of(b"", promoted={Region: "EU"})])
    assert published.subscribers == ("Q",)
    box.connection.execute("SELECT purge_subscriptions()")
    assert box.count("predicates") == 2
    assert box.count_rows("subscriptions") == 2
    box.connection.execute("SELECT purge_subscriptions(p_now => now() + interval '2 hours')")
    assert box.count_rows("subscriptions") == 1


def test_an_index_that_missed_a_purge_loads_everything_again(box: Box) -> None:
    box.add_port("P", "Region == 'EU'")
    box.add_port("Q", "exists(Region)")
    agent = box.agent()
    agent.publish([Message.of(b"", promoted={Region: "EU"})])
    ports.unenlist(box.connection, "P")
    box.connection.execute("SELECT purge_subscriptions(p_now => now() + interval '2 hours')")
    [published] = agent.publish([Message.of(b"", promoted={Region: "EU"})])
    assert published.subscribers == ("Q",)


def test_starting_resumes_messages_that_were_suspended_for_an_earlier_subscription(box: Box) -> None:
    """SPT-06, SPT-07."""
    box.add_port("P", "Region == 'EU'", state="stopped")
    agent = box.agent()
    for _ in range(3):
        agent.publish([Message.of(b"", promoted={Region: "EU"})])
    numbers = [seq for (seq,) in box.connection.execute("SELECT seq FROM suspended_queue ORDER BY seq")]
    change = ports.start(box.connection, "P")
    assert change.resumed == 3
    assert [seq for (seq,) in box.connection.execute("SELECT seq FROM work_queue ORDER BY seq")] == numbers
    assert box.suspended() == []
