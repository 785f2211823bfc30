"""Messages in the MessageBox that a filter matches."""

from __future__ import annotations

from decimal import Decimal

import pytest

from postroom.filters.evaluate import matches
from postroom.message import Context, Message
from postroom.operations.explain import matching_messages as module
from postroom.operations.explain.matching_messages import find_matching_messages
from postroom.properties import Property
from tests.support.box import Box, Priority, Region, Total


@pytest.fixture
def stored(box: Box, monkeypatch: pytest.MonkeyPatch) -> list[Message]:
    """Publish ten messages, and read them in batches of three. Return the ids, the latest first."""
    monkeypatch.setattr(module, "_BATCH_SIZE", 3)
    box.add_port("All", "exists(Region)")
    messages = [
        Message.of(b"", promoted={Region: "EU" if number % 2 else "US", Total: Decimal(number)}) for number in range(10)
    ]
    for message in messages:
        box.agent().publish([message])
    return messages[::-1]


def test_the_latest_matches_come_first(box: Box, stored: list[Message]) -> None:
    filter = (Region == "EU") & (Total >= 2) | (Total == 0)
    wanted = [message.message_id for message in stored if matches(filter, message.context.promoted)]
    found = find_matching_messages(box.connection, filter, limit=3)
    assert (found.scanned, found.matching) == (10, 5)
    assert [message.message_id for message in found.messages] == wanted[:3]
    assert all(message.explanation.holds for message in found.messages)
    assert found.nearest == []
    everything = find_matching_messages(box.connection, filter, limit=100)
    assert [message.message_id for message in everything.messages] == wanted


def test_only_the_given_number_of_messages_is_scanned(box: Box, stored: list[Message]) -> None:
    found = find_matching_messages(box.connection, Region == "EU", among=4)
    assert (found.scanned, found.matching) == (4, 2)


def test_the_nearest_misses_are_returned_without_a_match(box: Box, stored: list[Message]) -> None:
    found = find_matching_messages(box.connection, (Region == "EU") & (Priority == 1) & (Total == 3), misses=2)
    assert (found.matching, found.messages) == (0, [])
    nearest = next(message for message in stored if message.context[Total] == 3)
    assert found.nearest[0].message_id == nearest.message_id
    assert len(found.nearest) == 2


def test_a_value_of_another_type_is_a_miss(box: Box, stored: list[Message]) -> None:
    other = Property("Orders.Region", int)
    found = find_matching_messages(box.connection, other == 1)
    assert found.matching == 0
    assert "of type str and not int" in found.nearest[0].explanation.nearest.predicates[0].description


def test_an_empty_messagebox_matches_nothing(box: Box) -> None:
    found = find_matching_messages(box.connection, Region == "EU")
    assert (found.scanned, found.matching, found.nearest) == (0, 0, [])


def test_a_message_with_a_written_property_is_a_near_miss(box: Box) -> None:
    box.add_port("All", "exists(Total)")
    message = Message(context=Context().promote(Total, Decimal(1)).write(Region, "EU"))
    box.agent().publish([message])
    [nearest] = find_matching_messages(box.connection, Region == "EU").nearest
    assert "written ('EU') but not promoted" in nearest.explanation.nearest.predicates[0].description


def test_a_message_that_the_host_may_not_receive_is_marked(box: Box) -> None:
    box.add_port("All", "exists(Region)", host=box.add_host("Secure").name)
    thumbprint = Property("Security.Thumbprint", str)
    box.add_host_property(box.host("Secure").host_id, thumbprint.key, "T")
    box.agent().publish([Message(context=Context().promote(Region, "EU").require(thumbprint, "T"))])
    shown = frozenset({(thumbprint.key, "T")})
    for given, authorised in ((None, True), (shown, True), (frozenset(), False)):
        [one] = find_matching_messages(box.connection, Region == "EU", host_properties=given).messages
        assert one.authorised is authorised
