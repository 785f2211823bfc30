"""Messages with equal values join one instance, in all publish paths (ORC-20, 21, 22, 25, 28, DEQ-12)."""

from __future__ import annotations

import uuid
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from postroom.errors import DefinitionError
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.queues import QueueTask
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.properties import Property
from tests.support.box import Box, Priority, Region, Total
from tests.support.publishers import Publisher, PublishPath, is_waiting_for_lock, read_queued_numbers
from tests.support.waiting import PATIENCE, wait_until

SERVICE = SubscribingService(service_id=uuid.UUID(int=7), name="Collector")


@pytest.fixture
def publisher(box: Box, publish_path: PublishPath, host: Connection) -> Publisher:
    return Publisher(box, publish_path, host, box.add_location())


def collect(
    host: Connection,
    subscriptions: ServiceSubscriptions,
    *properties: Property,
    state: ServiceState = ServiceState.STARTED,
    priority: int = 7,
    ordered: bool = False,
) -> int:
    """Create the activation subscription of a convoy: messages with a region, correlated by these properties."""
    with host.transaction():
        convoys = subscriptions.create_convoy_set(host, properties) if properties else None
        activation = subscriptions.activate(
            host, SERVICE, Region.exists(), convoy_set_id=convoys, priority=priority, ordered=ordered
        )
        subscriptions.set_state(host, activation, state)
    return activation


def test_messages_with_equal_values_join_one_instance_before_it_has_started(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher
) -> None:
    """No host instance runs. Five messages of one key and three of another create two instances, not eight."""
    collect(host, subscriptions, Region)
    for region in "KKLKLKLK":
        assert publisher.publish({"region": region}) == 1
    found = read_queued_numbers(box)
    assert [len(seqs) for seqs in found.values()] == [5, 3]
    values = box.connection.execute("SELECT instance_id, value_1 FROM convoy_set_instances").fetchall()
    assert dict(values) == dict(zip(found, "KL", strict=True))
    assert box.one("SELECT array_agg(DISTINCT task::text) FROM work_queue") == [QueueTask.JOIN_INSTANCE]
    assert check(box.connection) == []


def test_messages_of_one_batch_join_one_instance(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher
) -> None:
    collect(host, subscriptions, Region)
    box.add_port("Everything", "exists(Region)")
    assert publisher.publish(*({"region": region} for region in "KLKKL")) == 5
    assert publisher.publish({"region": "L"}, {"region": "M"}) == 2
    sizes = Counter(len(seqs) for seqs in read_queued_numbers(box).values())
    assert sizes == {3: 2, 1: 8}  # K, L; M, and the port's seven
    assert check(box.connection) == []


@pytest.mark.parametrize("priority", [3, 7])
def test_only_the_first_message_of_a_convoy_has_the_priority_of_the_activation(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher, priority: int
) -> None:
    collect(host, subscriptions, Region, priority=priority)
    publisher.publish({"region": "K"})
    publisher.publish({"region": "K"})
    publisher.publish(*({"region": region} for region in "KLLKLM"))
    assert read_priorities(box, "work_queue") == [priority, 5, 5, priority, 5, 5, 5, priority]


def test_all_values_of_the_set_have_to_be_equal(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher
) -> None:
    collect(host, subscriptions, Region, Priority, Total)
    orders = [
        {"region": "K", "priority": 1, "total": 1},
        {"region": "K", "priority": 2, "total": 1},
        {"region": "K", "priority": 1, "total": 2},
        {"region": "K", "priority": 1, "total": 1},
        {"region": "K1", "priority": 1, "total": 1},
    ]
    for order in orders:
        publisher.publish(order)
    assert [len(seqs) for seqs in read_queued_numbers(box).values()] == [2, 1, 1, 1]


def test_values_whose_concatenations_are_equal_are_distinguished(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher
) -> None:
    collect(host, subscriptions, Region, Priority)
    publisher.publish({"region": "K1", "priority": 1})
    publisher.publish({"region": "K", "priority": 11})
    assert len(read_queued_numbers(box)) == 2


def test_a_message_without_one_of_the_properties_activates_its_own_instance(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher
) -> None:
    collect(host, subscriptions, Region, Priority)
    publisher.publish({"region": "K"}, {"region": "K"}, {"region": "K", "priority": 1}, {"region": "K", "priority": 1})
    assert sorted(len(seqs) for seqs in read_queued_numbers(box).values()) == [1, 1, 2]
    assert box.count("convoys") == 1


def test_long_values_are_keys_too(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher
) -> None:
    collect(host, subscriptions, Region)
    for end in "aab":
        publisher.publish({"region": "\N{HUNDRED POINTS SYMBOL}" * 255 + end})
    assert [len(seqs) for seqs in read_queued_numbers(box).values()] == [2, 1]


def test_the_end_of_an_instance_frees_its_values(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher
) -> None:
    collect(host, subscriptions, Region)
    publisher.publish({"region": "K"})
    [first] = read_queued_numbers(box)
    with host.transaction():
        assert subscriptions.complete(host, first) == 1
    assert box.count("convoys") == 0
    publisher.publish({"region": "K"})
    publisher.publish({"region": "K"})
    found = read_queued_numbers(box)
    assert [len(seqs) for seqs in found.values()] == [1, 2]
    assert next(iter(found)) == first


def test_a_rejected_publish_creates_no_instance(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publish_path: PublishPath, publisher: Publisher
) -> None:
    collect(host, subscriptions, Region)
    if publish_path is not PublishPath.STREAMING:  # the streaming lane does not reject a batch
        assert publisher.publish({"region": "K"}, {"priority": 1}) == 0
        assert (box.count("convoys"), box.count("queued")) == (0, 0)


def test_a_stopped_service_collects_in_the_suspended_queue(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher
) -> None:
    activation = collect(host, subscriptions, Region, state=ServiceState.STOPPED)
    for region in "KLK":
        publisher.publish({"region": region})
    assert [len(seqs) for seqs in read_queued_numbers(box).values()] == [2, 1]
    assert box.suspended() == [("PORT_STOPPED", True)] * 3
    assert read_priorities(box, "suspended_queue") == [7, 7, 5]
    subscriptions.set_state(host, activation, ServiceState.STARTED)
    assert box.suspended() == []
    assert box.one("SELECT array_agg(task::text) FROM work_queue") == [QueueTask.JOIN_INSTANCE] * 3


@pytest.mark.parametrize("ordered", [False, True])
def test_a_running_instance_of_a_stopped_service_gets_the_later_messages_of_its_convoy(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher, ordered: bool
) -> None:
    """ORS-03: new instances are suspended, with the messages that join them."""
    activation = collect(host, subscriptions, Region, ordered=ordered)
    publisher.publish({"region": "K"})
    subscriptions.set_state(host, activation, ServiceState.STOPPED)
    publisher.publish({"region": "K"})
    publisher.publish(*({"region": region} for region in "LKLMKL"))
    publisher.publish({"region": "L"})
    assert read_priorities(box, "work_queue") == [7, 5, 5, 5]
    assert read_priorities(box, "suspended_queue") == [7, 5, 7, 5, 5]
    assert box.suspended() == [("PORT_STOPPED", True)] * 5
    subscriptions.set_state(host, activation, ServiceState.STARTED)
    assert [len(seqs) for seqs in read_queued_numbers(box).values()] == [4, 4, 1]
    assert box.suspended() == []


def test_messages_of_a_subscription_that_is_still_stopped_stay_suspended(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher
) -> None:
    with host.transaction():
        first, second = (subscriptions.activate(host, SERVICE, Priority == number) for number in (1, 2))
    publisher.publish({"priority": 1})
    publisher.publish({"priority": 2})
    subscriptions.set_state(host, first, ServiceState.STARTED)
    assert box.one("SELECT array_agg(subscription_id) FROM work_queue") == [first]
    assert box.one("SELECT array_agg(subscription_id) FROM suspended_queue") == [second]


def test_two_subscriptions_can_share_a_convoy_set(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher
) -> None:
    """A parallel convoy does this: either message may be the first."""
    with host.transaction():
        shared = subscriptions.create_convoy_set(host, [Region])
        for filter in (Priority == 1, Priority == 2):
            activation = subscriptions.activate(host, SERVICE, filter, convoy_set_id=shared, priority=7)
            subscriptions.set_state(host, activation, ServiceState.STARTED)
    publisher.publish({"region": "K", "priority": 2})
    publisher.publish({"region": "K", "priority": 1})
    publisher.publish(*({"region": "L", "priority": number} for number in (2, 1, 2, 1, 2, 1)))
    assert [len(seqs) for seqs in read_queued_numbers(box).values()] == [2, 6]
    assert read_priorities(box, "work_queue") == [7, 5, 7, 5, 5, 5, 5, 5]


def test_two_concurrent_first_messages_of_one_key_create_one_instance(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publish_path: PublishPath, publisher: Publisher
) -> None:
    """ORC-22: the first publish has not committed. The second publish waits for it and joins its instance."""
    collect(host, subscriptions, Region)
    location = box.add_location(port="Second", name="second")
    with ThreadPoolExecutor() as pool, connect(box.url, user=box.host().role_name) as other:
        second = Publisher(box, publish_path, other, location)
        with host.transaction():
            assert publisher.publish({"region": "K"}) == 1
            published = pool.submit(second.publish, {"region": "K"})
            wait_until(lambda: is_waiting_for_lock(box, other), what="the second publisher to wait for the first")
        assert published.result(30) == 1
    assert [len(seqs) for seqs in read_queued_numbers(box).values()] == [2]
    assert read_priorities(box, "work_queue") == [7, 5]


@pytest.mark.parametrize("ordered", [True, False])
def test_only_publishes_to_an_ordered_convoy_wait_for_each_other(
    box: Box,
    host: Connection,
    subscriptions: ServiceSubscriptions,
    publish_path: PublishPath,
    publisher: Publisher,
    ordered: bool,
) -> None:
    """ORC-28: the numbers of the messages are in the order of the commits."""
    collect(host, subscriptions, Region, ordered=ordered)
    publisher.publish({"region": "K"})
    location = box.add_location(port="Second", name="second")
    with ThreadPoolExecutor() as pool, connect(box.url, user=box.host().role_name) as other:
        second = Publisher(box, publish_path, other, location)
        with host.transaction():
            publisher.publish({"region": "K"})
            published = pool.submit(second.publish, {"region": "K"})
            if ordered:
                wait_until(lambda: is_waiting_for_lock(box, other), what="the second publisher to wait for the first")
            else:
                assert published.result(PATIENCE) == 1
        assert published.result(PATIENCE) == 1
    assert [len(seqs) for seqs in read_queued_numbers(box).values()] == [3]


def test_the_second_message_creates_the_instance_if_the_first_is_rolled_back(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publish_path: PublishPath, publisher: Publisher
) -> None:
    collect(host, subscriptions, Region)
    location = box.add_location(port="Second", name="second")
    with ThreadPoolExecutor() as pool, connect(box.url, user=box.host().role_name) as other:
        second = Publisher(box, publish_path, other, location)
        with host.transaction(force_rollback=True):
            publisher.publish({"region": "K"})
            published = pool.submit(second.publish, {"region": "K"})
            wait_until(lambda: is_waiting_for_lock(box, other), what="the second publisher to wait for the first")
        assert published.result(30) == 1
    assert [len(seqs) for seqs in read_queued_numbers(box).values()] == [1]
    assert check(box.connection) == []


def test_a_publish_after_the_end_of_the_instance_creates_the_next_instance(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publisher: Publisher
) -> None:
    collect(host, subscriptions, Region)
    publisher.publish({"region": "K"})
    [first] = read_queued_numbers(box)
    with ThreadPoolExecutor() as pool, connect(box.url) as completing:
        with completing.transaction():
            assert subscriptions.complete(completing, first) == 1
            published = pool.submit(publisher.publish, {"region": "K"})
            wait_until(lambda: is_waiting_for_lock(box, host), what="the publish to wait for the completion")
        assert published.result(30) == 1
    assert [len(seqs) for seqs in read_queued_numbers(box).values()] == [1, 1]


def test_concurrent_publishes_and_completions_lose_no_message(
    box: Box, host: Connection, subscriptions: ServiceSubscriptions, publish_path: PublishPath
) -> None:
    """A key has at most one instance at a time. The completion of an instance returns all of its messages."""
    collect(host, subscriptions, Region)
    location = box.add_location()
    returned: list[tuple[uuid.UUID, int]] = []

    def publish(offset: int) -> None:
        with connect(box.url, user=box.host().role_name) as connection:
            publisher = Publisher(box, publish_path, connection, location)
            for number in range(20):
                keys = ["KLM"[(number + offset + i) % 3] for i in range(4)]
                assert publisher.publish(*({"region": key} for key in keys)) == 4

    def complete_instances(stop: list[bool]) -> None:
        with connect(box.url, user=box.host().role_name) as connection:
            while not stop:
                for (instance,) in find_instances():
                    with connection.transaction():
                        returned.append((instance, subscriptions.complete(connection, instance)))

    def find_instances() -> list[tuple[uuid.UUID]]:
        with connect(box.url) as admin:
            return admin.execute("SELECT instance_id FROM convoy_set_instances LIMIT 1").fetchall()

    stop: list[bool] = []
    with ThreadPoolExecutor() as pool:
        completing_all = pool.submit(complete_instances, stop)
        for one in [pool.submit(publish, offset) for offset in range(3)]:
            one.result(60)
        stop.append(True)
        completing_all.result(60)
    found = {instance: len(seqs) for instance, seqs in read_queued_numbers(box).items()}
    assert sum(found.values()) == 3 * 20 * 4
    alive = {instance for (instance,) in box.connection.execute("SELECT instance_id FROM convoy_set_instances")}
    assert len(alive) <= 3
    assert dict(returned) == {instance: count for instance, count in found.items() if instance not in alive}
    assert check(box.connection) == []


def read_priorities(box: Box, queue: str) -> list[int]:
    """Return the priorities of the messages in a queue, in their order."""
    return [priority for (priority,) in box.connection.execute(f"SELECT priority FROM {queue} ORDER BY seq")]


@pytest.mark.parametrize("properties", [[Region, Region], [Region, Priority, Total, Property("Orders.More", str)]])
def test_a_convoy_set_has_one_to_three_properties(
    host: Connection, subscriptions: ServiceSubscriptions, properties: list[Property]
) -> None:
    with pytest.raises(DefinitionError, match="one to 3 properties"):
        subscriptions.create_convoy_set(host, properties)
