"""The direct lane of the Message Agent: PUB-01 … 09, NRF-01 … 04, 11, SUB-12, 14, 22."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import pytest

from postroom.agent.routing import table as routing
from postroom.errors import BadValue, PublishFailed, RoutingFailure, StateError
from postroom.message import FRAGMENT_SIZE, Bytes, Message, Part
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.subscriptions import deploy_property
from postroom.operations.ports import send_ports as ports
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.values import ValueType
from tests.support.box import Box, Priority, Region, Total


def order(region: str = "EU", total: str = "1", body: bytes = b"{}") -> Message:
    return Message.of(body, promoted={Region: region, Total: Decimal(total)})


@pytest.fixture(params=["index", "procedure"])
def with_index(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "index")


def test_every_matching_subscriber_gets_a_reference_to_one_stored_copy(box: Box, with_index: bool) -> None:
    """MSG-05, PUB-15."""
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Big", "Total >= 10000")
    box.add_port("Asia", "Region == 'ASIA'")
    [published] = box.agent(warm=with_index).publish([order(total="20000")])
    assert published.subscribers == ("Big", "Europe")
    assert box.queued() == {"Big": 1, "Europe": 1}
    assert (box.count("messages"), box.count("parts")) == (1, 1)
    assert (box.count_references("message"), box.count_references("part")) == (2, 2)
    assert len({row.instance_id for row in box.queued_rows()}) == 2


@pytest.mark.parametrize("count", [2, 20])
def test_messages_with_equal_values_have_the_same_subscribers(box: Box, with_index: bool, count: int) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Big", "Total >= 10000")
    box.add_port("Asia", "Region == 'ASIA'")
    published = box.agent(warm=with_index).publish([order(total="20000") for _ in range(count)])
    assert [one.subscribers for one in published] == [("Big", "Europe")] * count
    assert box.queued() == {"Big": count, "Europe": count}


def test_a_subscription_that_matches_by_two_groups_is_delivered_once(box: Box, with_index: bool) -> None:
    box.add_port("Either", "Region == 'EU' or Total >= 1 or exists(Region)")
    box.agent(warm=with_index).publish([order(total="5")])
    assert box.queued() == {"Either": 1}


def test_the_properties_of_a_batch_are_deleted_after_the_publish(box: Box, with_index: bool) -> None:
    box.add_port("Europe", "Region == 'EU'")
    agent = box.agent(warm=with_index)
    agent.publish([order(), order()])
    with pytest.raises(PublishFailed):
        agent.publish([order(), order(region="nowhere")])
    assert (box.count("transient properties"), box.count("transient predicates")) == (0, 0)


def test_one_unroutable_message_rejects_the_batch_and_leaves_a_report(box: Box, with_index: bool) -> None:
    box.add_port("Europe", "Region == 'EU'")
    good, bad = order(), order(region="nowhere")
    with pytest.raises(PublishFailed) as error:
        box.agent(warm=with_index).publish([good, bad])
    results = {result.message_id: result.failure for result in error.value.results}
    assert results[good.message_id] is None
    assert isinstance(results[bad.message_id], RoutingFailure)
    assert box.queued() == {}
    assert box.suspended() == [("ROUTING", False)]
    assert box.messages()[0].context == bad.context
    assert box.messages()[0].part_ids == []


def test_an_unroutable_message_with_the_flag_is_suspended(box: Box, with_index: bool) -> None:
    message = Message.of(b"keep me", promoted={Region: "nowhere", BTS.SuspendMessageOnRoutingFailure: True})
    [published] = box.agent(warm=with_index).publish([message])
    assert published.suspended
    assert sorted(box.suspended()) == [("ROUTING", False), ("ROUTING", True)]
    assert box.parts()[0].body == b"keep me"


def test_a_stopped_subscriber_counts_and_an_unenlisted_one_does_not(box: Box, with_index: bool) -> None:
    """NRF-14, NRF-15, SPT-03."""
    box.add_port("Stopped", "Region == 'EU'", state="stopped")
    agent = box.agent(warm=with_index)
    agent.publish([order()])
    assert box.suspended() == [("PORT_STOPPED", True)]
    ports.unenlist(box.connection, "Stopped")
    with pytest.raises(PublishFailed):
        agent.publish([order()])


def test_a_repeated_publish_with_the_same_key_publishes_nothing(box: Box, with_index: bool) -> None:
    box.add_port("Europe", "Region == 'EU'")
    first = box.agent(warm=with_index).publish([order(), order()], key="invoice-7")
    again = box.agent(warm=with_index).publish([order(), order()], key="invoice-7")
    assert again == first
    assert box.queued() == {"Europe": 2}
    box.agent(warm=with_index).publish([order()], key="invoice-8")
    assert box.queued() == {"Europe": 3}


def test_a_failed_publish_can_be_repeated_with_its_key(box: Box, with_index: bool) -> None:
    for _ in range(2):
        with pytest.raises(PublishFailed):
            box.agent(warm=with_index).publish([order()], key="early")
    box.add_port("Europe", "Region == 'EU'")
    [published] = box.agent(warm=with_index).publish([order()], key="early")
    assert published.subscribers == ("Europe",)


def test_parts_and_large_bodies_are_stored_byte_for_byte(box: Box, with_index: bool) -> None:
    box.add_port("Europe", "Region == 'EU'")
    large = bytes(range(256)) * 2000
    message = Message.of(
        large,
        promoted={Region: "EU"},
        parts=[Part(name="note", body=Bytes(b"n")), Part(name="scan", body=Bytes(large))],
    )
    box.agent(warm=with_index).publish([message])
    parts = {part.name: (part.body, part.size) for part in box.parts()}
    assert parts == {"body": (None, len(large)), "note": (b"n", 1), "scan": (None, len(large))}
    assert b"".join(box.fragments()) == large * 2
    assert max(map(len, box.fragments())) == FRAGMENT_SIZE
    assert box.messages()[0].part_ids == [part.part_id for part in message.parts]


def test_a_value_of_another_type_than_deployed_is_rejected_with_the_property_name(box: Box, with_index: bool) -> None:
    box.add_port("Europe", "Region == 'EU'")
    wrong = Message.of(b"", promoted={Property("Orders.Priority", str): "high"})
    with pytest.raises(PublishFailed) as error:
        box.agent(warm=with_index).publish([order(), wrong])
    failure = error.value.results[1].failure
    assert isinstance(failure, BadValue)
    assert "Priority is deployed as int, not str" in failure.what
    assert error.value.results[0].failure is None
    assert (box.count("messages"), box.count("suspended")) == (0, 0)


def test_a_message_with_a_wrong_value_and_the_flag_is_suspended_alone(box: Box, with_index: bool) -> None:
    box.add_port("All", "exists(Region) or exists(Total)")
    keep = {BTS.SuspendMessageOnRoutingFailure: True}
    large = b"x" * (FRAGMENT_SIZE + 1)
    wrong = Message.of(large, promoted={Property("Orders.Region", int): 5, Total: Decimal(1), **keep})
    results = box.agent(warm=with_index).publish([order(), wrong, order()])
    assert [(result.subscribers, result.suspended) for result in results] == [
        (("All",), False),
        ((), True),
        (("All",), False),
    ]
    assert box.queued() == {"All": 2}
    assert box.suspended() == [("BAD_VALUE", False)]
    assert "Region is deployed as str, not int" in box.read_error()
    assert box.suspended_rows()[0].message_id == wrong.message_id
    assert sum(map(len, box.fragments())) == len(large)
    assert check(box.connection) == []


@pytest.mark.parametrize("subscribed", [False, True], ids=["no subscriber", "stale index"])
def test_a_property_that_was_deployed_after_the_index_was_loaded_is_checked(box: Box, subscribed: bool) -> None:
    """The index is stale when the publish starts, and catches up during the publish."""
    if subscribed:
        box.add_port("Europe", "Region == 'EU'")
    agent = box.agent(warm=True)
    box.add_port("First", "Region == 'US'")
    agent.publish([order(region="US")])
    deploy_property(box.connection, "Orders#Weight", ValueType.FLOAT)
    box.add_port("Heavy", "Weight > 5.0")
    wrong = Message.of(b"", promoted={Region: "EU", Property("Orders.Weight", str): "heavy"})
    with pytest.raises(PublishFailed) as error:
        agent.publish([wrong])
    assert isinstance(error.value.results[0].failure, BadValue)
    assert (box.count("messages"), box.count("suspended")) == (1, 0)


def test_a_message_and_its_changed_copy_are_two_messages(box: Box, with_index: bool) -> None:
    box.add_port("Europe", "Region == 'EU'")
    message = order(body=b"shared")
    changed = message.with_context(message.context.promote(Priority, 1))
    box.agent(warm=with_index).publish([message, changed])
    assert (box.count("messages"), box.count("parts")) == (2, 2)
    with pytest.raises(StateError, match="already"):
        box.agent(warm=with_index).publish([message])


def test_a_large_body_is_written_before_the_routing_lock_is_taken(box: Box, with_index: bool) -> None:
    """LRG-03."""
    box.add_port("Europe", "Region == 'EU'")
    locked: list[bool] = []

    class LockObserver:
        size = 300_000

        def chunks(self) -> Iterator[bytes]:
            for _ in range(3):
                locked.append(
                    box.one("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7001") > 0
                )
                yield b"x" * 100_000

    with connect(box.url) as connection:
        box.agent(warm=with_index, connection=connection).publish([Message.of(LockObserver(), promoted={Region: "EU"})])
    assert locked == [False] * 3


def test_the_same_message_twice_in_a_batch_is_rejected(box: Box, with_index: bool) -> None:
    box.add_port("Europe", "Region == 'EU'")
    message = order()
    with pytest.raises(StateError):
        box.agent(warm=with_index).publish([message, message])


def test_a_directed_message_reaches_a_port_without_filter(box: Box, with_index: bool) -> None:
    box.add_port("Plain")
    transport = box.port("Plain").transport_id
    agent = box.agent(warm=with_index)
    agent.publish([Message.of(b"for you", promoted={BTS.SPTransportID: str(transport)})])
    assert box.queued() == {"Plain": 1}
    with pytest.raises(PublishFailed):
        agent.publish([Message.of(b"for nobody", promoted={BTS.SPTransportID: str(uuid.uuid4())})])


def test_a_written_property_does_not_route(box: Box, with_index: bool) -> None:
    box.add_port("Europe", "Region == 'EU'")
    agent = box.agent(warm=with_index)
    with pytest.raises(PublishFailed):
        agent.publish([Message.of(b"", written={Region: "EU"})])
    demoted = Message.of(b"", promoted={Region: "EU"})
    with pytest.raises(PublishFailed):
        agent.publish([demoted.with_context(demoted.context.write(Region, "EU"))])
    with pytest.raises(PublishFailed):
        agent.publish([demoted.with_context(demoted.context.promote(Region, None))])


def test_a_publish_sees_every_enlist_that_returned_before_it(box: Box, with_index: bool) -> None:
    agent = box.agent(warm=with_index)
    box.add_port("First", "Region == 'EU'")
    agent.publish([order()])
    for number in range(5):
        box.add_port(f"Later{number}", "Region == 'EU'")
        [published] = agent.publish([order()])
        assert len(published.subscribers) == number + 2
    ports.unenlist(box.connection, "First")
    [published] = agent.publish([order()])
    assert "First" not in published.subscribers


def test_a_subscription_receives_no_message_that_was_published_before_it(box: Box, with_index: bool) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.agent(warm=with_index).publish([order()])
    box.add_port("Late", "Region == 'EU'")
    assert box.queued() == {"Europe": 1}


def test_the_queue_row_has_the_priority_of_the_port(box: Box, with_index: bool) -> None:
    box.add_port("Urgent", "Priority == 1", priority=2)
    box.agent(warm=with_index).publish([Message.of(b"", promoted={Priority: 1})])
    assert [row.priority for row in box.queued_rows()] == [2]


def test_an_index_whose_catch_up_was_interrupted_finds_every_subscriber(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    box.add_port("First", "Region == 'EU'")
    agent = box.agent()
    agent.publish([order()])
    box.add_port("Second", "Region == 'EU'")
    with monkeypatch.context() as interrupted:
        interrupted.setattr(routing, "read_filters", _interrupt)
        with pytest.raises(KeyboardInterrupt):
            agent.publish([order()])
    [published] = agent.publish([order()])
    assert published.subscribers == ("First", "Second")


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("size", [10, 3 * FRAGMENT_SIZE])
def test_an_acknowledgement_without_subscriber_is_dropped(box: Box, with_index: bool, size: int) -> None:
    """NRF-11: the other messages of the batch are published. A subscribed acknowledgement is delivered."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    ack = Message.of(b"a" * size, promoted={BTS.AckType: "ACK"})
    order = Message.of(b"order", promoted={Region: "EU"})
    published = box.agent(warm=with_index, is_engine=True).publish([ack, order])
    assert [(message.subscribers, message.suspended) for message in published] == [((), False), (("Europe",), False)]
    assert (box.count("messages"), box.count("fragments"), box.suspended()) == (1, 0, [])
    box.add_port("Nacks", "BTS.AckType == 'NACK'")
    [nack] = box.agent(warm=with_index, is_engine=True).publish(
        [Message.of(b"n" * size, promoted={BTS.AckType: "NACK"})]
    )
    assert nack.subscribers == ("Nacks",)
    assert check(box.connection) == []


@pytest.mark.parametrize("repeats", [1, 20])
def test_few_and_many_messages_are_published_alike(box: Box, with_index: bool, repeats: int) -> None:
    """A few are inserted by calls, many are copied: routed, suspended at a stopped port, dropped, kept, in parts."""
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Stopped", "Region == 'EU'", state="stopped")
    agent = box.agent(warm=with_index, is_engine=True)

    def messages() -> list[Message]:
        part = Part(name="attachment", body=Bytes(b"a" * 3 * FRAGMENT_SIZE))
        return [
            order(),
            Message.of(b"b" * 2 * FRAGMENT_SIZE, promoted={Region: "EU"}, parts=[part]),
            Message.of(b"ack", promoted={BTS.AckType: "ACK"}),
            Message.of(None, promoted={Region: "EU"}),
        ]

    published = agent.publish([message for _ in range(repeats) for message in messages()])
    expected: list[tuple[str, ...]] = [("Europe", "Stopped"), ("Europe", "Stopped"), (), ("Europe", "Stopped")]
    assert [message.subscribers for message in published] == expected * repeats
    assert (box.queued(), box.suspended()) == ({"Europe": 3 * repeats}, [("PORT_STOPPED", True)] * 3 * repeats)
    assert (box.count("messages"), box.count("parts")) == (3 * repeats, 3 * repeats)
    assert box.count("fragments") == 5 * repeats
    assert len({row.instance_id for row in box.instances()}) == 6 * repeats
    assert check(box.connection) == []


@pytest.mark.parametrize("few", [2, 5])
def test_a_few_messages_take_as_many_round_trips_as_one(box: Box, few: int, tmp_path: Path) -> None:
    """The first statement takes the routing lock, so the others must not wait for the network."""
    box.add_port("Europe", "Region == 'EU'")
    agent = box.agent()

    for number in range(5):
        agent.publish([order(), order()], key=f"before {number}")  # the statements get prepared

    def count_round_trips(messages: int) -> int:
        with (tmp_path / "trace").open("w+") as trace:
            box.connection.pgconn.trace(trace.fileno())
            agent.publish([order() for _ in range(messages)], key=str(messages))
            box.connection.pgconn.untrace()
            trace.seek(0)
            return sum("ReadyForQuery" in line and line.endswith(" T\n") for line in trace)  # in a transaction

    assert count_round_trips(few) == count_round_trips(1)
    assert box.queued() == {"Europe": 10 + few + 1}


def test_a_few_messages_are_published_again_after_a_change_of_subscriptions(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    agent = box.agent()
    agent.publish([order()])
    box.add_port("All", "exists(Region)")
    published = agent.publish([order(), order(), order()], key="k")
    assert {message.subscribers for message in published} == {("All", "Europe")}
    assert check(box.connection) == []


def test_one_stored_message_among_a_few_rejects_all_of_them(box: Box, with_index: bool) -> None:
    box.add_port("Europe", "Region == 'EU'")
    agent, stored = box.agent(warm=with_index), order()
    agent.publish([stored])
    with pytest.raises(StateError, match="is in the MessageBox already"):
        agent.publish([order(), stored, order()], key="k")
    assert box.queued() == {"Europe": 1}
    assert len(agent.publish([order(), order()], key="k")) == 2, "the connection and the key can be used again"
