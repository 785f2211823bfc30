"""Instance subscriptions in all three publish paths, without lost messages: SUB-02 … 07, 20, 23."""

from __future__ import annotations

import uuid
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal

import pytest

from postroom.errors import DefinitionError, NotAllowed, StateError, StorageFailure
from postroom.filters.expression import Filter
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.properties import Property
from tests.support.box import Box, Priority, Region, Total
from tests.support.publishers import Publisher, PublishPath, is_waiting_for_lock, read_queued_numbers
from tests.support.waiting import wait_until

SERVICE = SubscribingService(service_id=uuid.UUID(int=7), name="Approval")


@pytest.fixture
def publisher(box: Box, publish_path: PublishPath, host: Connection) -> Publisher:
    return Publisher(box, publish_path, host, box.add_location() if publish_path is PublishPath.STREAMING else None)


def wait(
    box: Box, subscriptions: ServiceSubscriptions, filter: Filter, instance_id: uuid.UUID | None = None
) -> uuid.UUID:
    """Create an instance subscription with the login of the host. Return the instance id."""
    waiting = instance_id or uuid.uuid4()
    with connect(box.url, user=box.host().role_name) as connection:
        subscriptions.wait(connection, SERVICE, waiting, filter)
    return waiting


def test_a_message_is_routed_to_the_instance_that_waits_for_it(
    box: Box, publisher: Publisher, subscriptions: ServiceSubscriptions
) -> None:
    first = wait(box, subscriptions, (Region == "EU") & (Priority == 1))
    second = wait(box, subscriptions, (Region == "EU") & (Priority == 2))
    for priority in (1, 2, 1):
        assert publisher.publish({"region": "EU", "priority": priority}) == 1
    found = read_queued_numbers(box)
    assert {instance: len(seqs) for instance, seqs in found.items()} == {first: 2, second: 1}
    row = box.connection.execute("SELECT DISTINCT service_class, service_id, task, priority FROM work_queue").fetchall()
    assert row == [(ServiceClass.ORCHESTRATIONS, SERVICE.service_id, "join_instance", 5)]
    assert check(box.connection) == []


def test_a_message_with_only_an_instance_subscription_is_no_routing_failure(
    box: Box, publisher: Publisher, subscriptions: ServiceSubscriptions
) -> None:
    wait(box, subscriptions, Region == "EU")
    assert publisher.publish({"region": "EU"}, {"region": "EU"}) == 2
    assert publisher.publish({"region": "US"}) == 0
    assert box.count("queued") == 2


@pytest.mark.parametrize(
    ("filter", "met", "missed"),
    [
        (Region == 'Île d\'été, "x"', {"region": 'Île d\'été, "x"'}, {"region": "Île d'été"}),
        (Total == Decimal("12.50"), {"total": Decimal("12.5")}, {"total": Decimal("12.51")}),
        (Total == Decimal(1200), {"total": Decimal(1200)}, {"total": Decimal(120)}),
        (Priority == -3, {"priority": -3}, {"priority": 3}),
    ],
)
def test_values_of_every_type_can_be_correlated(
    box: Box,
    publisher: Publisher,
    subscriptions: ServiceSubscriptions,
    filter: Filter,
    met: dict[str, object],
    missed: dict[str, object],
) -> None:
    wait(box, subscriptions, filter)
    assert (publisher.publish(met), publisher.publish(missed)) == (1, 0)


def test_a_message_without_the_property_does_not_match_an_instance_subscription(
    box: Box, publisher: Publisher, subscriptions: ServiceSubscriptions
) -> None:
    wait(box, subscriptions, (Region == "EU") & (Priority == 1))
    assert publisher.publish({"region": "EU"}) == 0
    assert publisher.publish({"region": "EU", "priority": 1}) == 1


def test_all_matching_instances_and_ports_get_the_message(
    box: Box, publisher: Publisher, subscriptions: ServiceSubscriptions
) -> None:
    """No subscriber has precedence (SUB-12), and subscribers with equal predicates all receive the message (SUB-20)."""
    box.add_port("Europe", "Region == 'EU'")
    waiting = [wait(box, subscriptions, Region == "EU") for _ in range(2)]
    waiting.append(wait(box, subscriptions, Priority == 1))
    with box.connection.transaction():
        for name in ("One", "Other"):
            service = SubscribingService(service_id=uuid.uuid4(), name=name)
            activation = subscriptions.activate(box.connection, service, Region == "EU")
            subscriptions.set_state(box.connection, activation, ServiceState.STARTED)
    assert publisher.publish({"region": "EU", "priority": 1}) == 1
    found = read_queued_numbers(box)
    assert len(found) == 6
    assert set(waiting) < set(found)
    assert box.one("SELECT total FROM message_ref_counts") == 6
    assert check(box.connection) == []


def test_two_correlations_with_the_same_hash_are_distinguished(
    box: Box, publisher: Publisher, subscriptions: ServiceSubscriptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("postroom.agent.routing.correlation.correlation_hash", lambda correlation: 42)
    box.connection.execute(
        "CREATE OR REPLACE FUNCTION messagebox.correlation_hash(p_type_id integer, p_values text[]) RETURNS bigint"
        " LANGUAGE sql IMMUTABLE AS 'SELECT 42::bigint'"
    )
    europe = wait(box, subscriptions, Region == "EU")
    wait(box, subscriptions, Region == "US")
    wait(box, subscriptions, Priority == 1)
    assert publisher.publish({"region": "EU", "priority": 2}, {"region": "EU", "priority": 3}) == 2
    assert list(read_queued_numbers(box)) == [europe]
    assert publisher.publish({"region": "ASIA"}) == 0


def test_only_a_new_correlation_type_changes_the_routing_version(box: Box, subscriptions: ServiceSubscriptions) -> None:
    def version() -> int:
        return int(box.one("SELECT version FROM routing_version"))

    before = version()
    wait(box, subscriptions, (Region == "EU") & (Priority == 1))
    first = version()
    wait(box, subscriptions, (Priority == 2) & (Region == "US"))
    assert (first, version()) == (before + 1, before + 1)
    wait(box, subscriptions, Region == "US")
    assert version() == before + 2


def test_a_publisher_uses_a_new_correlation_type(
    box: Box, publisher: Publisher, subscriptions: ServiceSubscriptions
) -> None:
    wait(box, subscriptions, Region == "EU")
    publisher.publish({"region": "EU"})
    late = wait(box, subscriptions, Priority == 1)
    assert publisher.publish({"region": "nowhere", "priority": 1}) == 1
    assert late in read_queued_numbers(box)


def test_no_message_is_routed_to_a_completed_instance(
    box: Box, publisher: Publisher, subscriptions: ServiceSubscriptions
) -> None:
    """Messages that were routed before stay queued, and the completion counts them."""
    instance = wait(box, subscriptions, Region == "EU")
    wait(box, subscriptions, Priority == 1, instance)
    other = wait(box, subscriptions, Region == "EU")
    publisher.publish({"region": "EU"})
    publisher.publish({"priority": 1})
    before = read_queued_numbers(box)
    with box.connection.transaction():
        left = subscriptions.complete(box.connection, instance)
    assert left == len(before[instance])
    assert publisher.publish({"priority": 1}) == 0
    assert publisher.publish({"region": "EU"}) == 1
    after = read_queued_numbers(box)
    assert after[instance] == before[instance]
    assert len(after[other]) == 2
    assert check(box.connection) == []


def test_one_subscription_of_an_instance_can_be_removed(
    box: Box, publisher: Publisher, subscriptions: ServiceSubscriptions, host: Connection
) -> None:
    instance = uuid.uuid4()
    subscriptions.wait(host, SERVICE, instance, Region == "EU")
    wait(box, subscriptions, Region == "US", instance)
    assert not subscriptions.stop_waiting(host, uuid.uuid4(), Region == "EU")
    assert subscriptions.stop_waiting(host, instance, Region == "EU")
    assert not subscriptions.stop_waiting(host, instance, Region == "EU")
    assert (publisher.publish({"region": "EU"}), publisher.publish({"region": "US"})) == (0, 1)


def test_removed_instance_subscriptions_are_purged_by_the_job(box: Box, subscriptions: ServiceSubscriptions) -> None:
    instance = wait(box, subscriptions, Region == "EU")
    wait(box, subscriptions, Region == "US")
    subscriptions.complete(box.connection, instance)
    assert box.count_rows("subscriptions") == 2
    assert box.one("SELECT purge_subscriptions()") == 1
    assert box.count_rows("subscriptions") == 1


def test_completing_an_instance_waits_for_a_publish_that_matched_it(
    box: Box, publish_path: PublishPath, subscriptions: ServiceSubscriptions, host: Connection
) -> None:
    """The publish has not committed. The completion waits for it and counts its message."""
    instance = wait(box, subscriptions, Region == "EU")
    publisher = Publisher(box, publish_path, host, box.add_location())
    with ThreadPoolExecutor() as pool, connect(box.url) as completing:
        with host.transaction():
            assert publisher.publish({"region": "EU"}) == 1
            completed = pool.submit(subscriptions.complete, completing, instance)
            wait_until(lambda: is_waiting_for_lock(box, completing), what="the completion to wait for the publish")
        left = completed.result(30)
    assert left == len(read_queued_numbers(box)[instance]) == 1


def test_a_publish_that_waited_for_a_completion_does_not_match_the_instance(
    box: Box, publish_path: PublishPath, subscriptions: ServiceSubscriptions, host: Connection
) -> None:
    box.add_port("Everything", "exists(Region)")
    instance = wait(box, subscriptions, Region == "EU")
    publisher = Publisher(box, publish_path, host, box.add_location())
    publisher.publish({"region": "US"})
    with ThreadPoolExecutor() as pool, connect(box.url) as completing:
        with completing.transaction():
            assert subscriptions.complete(completing, instance) == 0
            published = pool.submit(publisher.publish, {"region": "EU"})
            wait_until(lambda: is_waiting_for_lock(box, host), what="the publish to wait for the completion")
        assert published.result(30) == 1
    assert instance not in read_queued_numbers(box)
    assert box.queued() == {"Everything": 2}
    assert check(box.connection) == []


def test_concurrent_completions_and_publishes_have_a_serial_history(
    box: Box, publish_path: PublishPath, subscriptions: ServiceSubscriptions
) -> None:
    """Every message is either returned by the completion, or not routed to the instance."""
    location = box.add_location()
    box.add_port("Everything", "exists(Region)")
    returned: dict[uuid.UUID, int] = {}

    def create_and_complete() -> None:
        with connect(box.url, user=box.host().role_name) as connection:
            for _ in range(30):
                instance = uuid.uuid4()
                subscriptions.wait(connection, SERVICE, instance, Region == "EU")
                with connection.transaction():
                    returned[instance] = subscriptions.complete(connection, instance)

    def publish(stop: list[bool]) -> int:
        published = 0
        with connect(box.url, user=box.host().role_name) as connection:
            publisher = Publisher(box, publish_path, connection, location)
            while not stop:
                published += publisher.publish({"region": "EU"}, {"region": "EU"})
        return published

    stop: list[bool] = []
    with ThreadPoolExecutor() as pool:
        publishers = [pool.submit(publish, stop) for _ in range(2)]
        completions = [pool.submit(create_and_complete) for _ in range(2)]
        for completion in completions:
            completion.result(60)
        stop.append(True)
        published = sum(publisher.result(60) for publisher in publishers)
    found = {instance: len(seqs) for instance, seqs in read_queued_numbers(box).items() if instance in returned}
    assert found == {instance: count for instance, count in returned.items() if count}
    assert box.queued() == {"Everything": published}
    assert check(box.connection) == []


@pytest.mark.parametrize(
    "filter",
    [Region != "EU", (Region == "EU") | (Region == "US"), Total >= 5, (Region == "EU") & (Region == "US")],
)
def test_an_instance_subscription_consists_of_equalities(
    box: Box, subscriptions: ServiceSubscriptions, filter: Filter
) -> None:
    with pytest.raises(DefinitionError, match="An instance cannot wait for"):
        subscriptions.wait(box.connection, SERVICE, uuid.uuid4(), filter)
    assert box.count_rows("subscriptions") == 0


@pytest.mark.parametrize("unknown", [Property("Orders.Unknown", str) == "x", Property("Orders.Priority", str) == "1"])
def test_a_property_that_is_not_deployed_with_this_type_is_rejected(
    box: Box, subscriptions: ServiceSubscriptions, unknown: Filter
) -> None:
    with pytest.raises(DefinitionError, match="not deployed") as error:
        subscriptions.wait(box.connection, SERVICE, uuid.uuid4(), unknown)
    assert "Orders" in error.value.why


def test_all_service_classes_subscribe_and_receive_in_the_same_way(
    box: Box, publish_path: PublishPath, host: Connection
) -> None:
    classes = [
        ServiceClass.ORCHESTRATIONS,
        ServiceClass.MESSAGING_IN_PROCESS,
        ServiceClass.CACHING,
        ServiceClass.MESSAGING_ISOLATED,
    ]
    for service_class in classes:
        wait(box, ServiceSubscriptions(box.host(), service_class), Region == "EU")
        subscriptions = ServiceSubscriptions(box.host(), service_class)
        with host.transaction():
            activation = subscriptions.activate(host, SERVICE, Region.exists())
            subscriptions.set_state(host, activation, ServiceState.STARTED)
    Publisher(box, publish_path, host, box.add_location()).publish({"region": "EU"})
    rows = box.connection.execute("SELECT service_class, count(*) FROM work_queue GROUP BY 1 ORDER BY 1").fetchall()
    assert rows == [(service_class, 2) for service_class in classes]


def test_a_host_cannot_change_the_subscriptions_of_another_host(box: Box, subscriptions: ServiceSubscriptions) -> None:
    other = ServiceSubscriptions(box.add_host("Other"), ServiceClass.ORCHESTRATIONS)
    instance = wait(box, subscriptions, Region == "EU")
    with box.connection.transaction():
        convoy_set = subscriptions.create_convoy_set(box.connection, [Region])
        activation = subscriptions.activate(box.connection, SERVICE, Region == "EU", convoy_set_id=convoy_set)
    with connect(box.url, user=box.host("Other").role_name) as connection:
        for call in (
            lambda: other.set_state(connection, activation, ServiceState.STARTED),
            lambda: other.remove(connection, activation),
            lambda: other.activate(connection, SERVICE, Region == "EU", convoy_set_id=convoy_set),
            lambda: subscriptions.wait(connection, SERVICE, uuid.uuid4(), Region == "EU"),
            lambda: subscriptions.complete(connection, instance),
            lambda: subscriptions.create_convoy_set(connection, [Region]),
        ):
            with pytest.raises(NotAllowed):
                call()
        assert other.complete(connection, instance) == 0
        assert not other.stop_waiting(connection, instance, Region == "EU")
    assert box.count("subscriptions") == 2


def test_a_predicate_that_is_added_after_its_subscription_is_rejected(box: Box) -> None:
    box.add_port("P", "Region == 'EU'", state="stopped")
    subscription_id = box.one("SELECT id FROM subscriptions")
    with pytest.raises(StateError, match="not made by this transaction"):
        box.connection.execute(
            "SELECT insert_predicate_default(%s, 0, 5::smallint, %s, 0::smallint, 'US', null, null, null)",
            (subscription_id, Region.key),
        )
    assert box.one("SELECT predicate_count FROM predicate_groups WHERE number = 0") == 1


def test_the_filter_of_an_instance_subscription_cannot_contain_values(
    box: Box, subscriptions: ServiceSubscriptions
) -> None:
    subscriptions.wait(box.connection, SERVICE, uuid.uuid4(), Region == "EU")
    with pytest.raises(StorageFailure):
        box.connection.execute("UPDATE subscriptions SET filter = 'EU'")
