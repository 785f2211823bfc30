"""Operations on instances with several messages (INS-05, ORC-25)."""

from __future__ import annotations

import uuid

import pytest

from postroom.errors import DefinitionError, NotFound, StateError
from postroom.filters.text import format_filter
from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.instances import InstanceQuery, InstanceState, count_instances, get_instance, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.operations.instances.changes import resume_with_body
from postroom.operations.messages import list_referring_instances
from postroom.operations.subscriptions import find_subscription, list_subscriptions, read_subscription_filters
from tests.support.box import Box, Priority, Region
from tests.support.changes import resume, suspend, suspend_all, terminate, terminate_all

SERVICE = SubscribingService(service_id=uuid.UUID(int=7), name="Collector")


@pytest.fixture
def subscriptions(box: Box) -> ServiceSubscriptions:
    """Create a service with convoys by region."""
    made = ServiceSubscriptions(box.host(), ServiceClass.ORCHESTRATIONS)
    with box.connection.transaction():
        convoys = made.create_convoy_set(box.connection, [Region])
        activation = made.activate(
            box.connection, SERVICE, Region.exists(), convoy_set_id=convoys, priority=3, ordered=True
        )
        made.set_state(box.connection, activation, ServiceState.STARTED)
    return made


@pytest.fixture
def messages(box: Box, subscriptions: ServiceSubscriptions) -> list[Message]:
    """Publish three messages for K, two for L, and one for a port."""
    box.add_port("Port", "Priority == 9")
    published = [Message.of(b"", promoted={Region: region}) for region in "KLKLK"]
    box.agent().publish(published)
    # In another publish: rows of ordered subscriptions get the highest numbers of a batch.
    last = Message.of(b"", promoted={Priority: 9})
    box.agent().publish([last])
    return [*published, last]


def test_an_instance_is_listed_once_with_the_number_of_its_messages(box: Box, messages: list[Message]) -> None:
    port, other, k = list_instances(box.connection, InstanceQuery())
    assert [(instance.service, instance.messages, instance.message_id) for instance in (k, other, port)] == [
        ("Collector", 3, messages[0].message_id),
        ("Collector", 2, messages[1].message_id),
        ("Port", 1, messages[5].message_id),
    ]
    assert len(list_instances(box.connection, InstanceQuery(limit=2))) == 2
    assert get_instance(box.connection, k.instance_id) == k
    [counted, _] = count_instances(box.connection, InstanceQuery(), "port")
    assert (counted.value, counted.count) == ("Collector", 2)


def test_every_message_lists_the_instance_that_it_joined(box: Box, messages: list[Message]) -> None:
    for joined in (messages[0], messages[2], messages[4]):
        [instance] = list_referring_instances(box.connection, joined.message_id)
        assert (instance.message_id, instance.messages) == (joined.message_id, 3)


def test_all_messages_of_an_instance_are_suspended_resumed_and_terminated_together(
    box: Box, messages: list[Message]
) -> None:
    _, other, k = list_instances(box.connection, InstanceQuery())
    numbers = _read_numbers(box)
    suspend(box.connection, k.instance_id)
    assert box.count("suspended") == 3
    [suspended] = list_instances(box.connection, InstanceQuery(states=[InstanceState.SUSPENDED]))
    assert suspended.messages == 3
    with pytest.raises(StateError, match="3 messages are suspended in it"):
        resume_with_body(box.connection, k.instance_id, b"corrected")
    resume(box.connection, k.instance_id)
    assert _read_numbers(box) == numbers
    assert suspend_all(box.connection, InstanceQuery(port="Collector")) == 2
    terminate(box.connection, other.instance_id)
    assert terminate_all(box.connection, InstanceQuery()) == 2
    assert (box.count("instances"), box.count("convoys")) == (0, 0)
    assert check(box.connection) == []


def _read_numbers(box: Box) -> list[int]:
    return [row.seq for row in box.queued_rows()]


def test_an_instance_with_an_active_message_is_not_changed_at_once(box: Box, messages: list[Message]) -> None:
    *_, k = list_instances(box.connection, InstanceQuery())
    box.claim_row(box.queued_rows()[0].seq)
    assert suspend(box.connection, k.instance_id) is False
    with pytest.raises(StateError, match="another operation is pending"):
        terminate(box.connection, k.instance_id)
    assert get_instance(box.connection, k.instance_id).messages == 3
    assert terminate_all(box.connection, InstanceQuery(port="Collector")) == 1
    assert box.count("convoys") == 1


def test_terminating_releases_correlation_values_and_removes_subscriptions(
    box: Box, messages: list[Message], subscriptions: ServiceSubscriptions
) -> None:
    *_, k = list_instances(box.connection, InstanceQuery())
    subscriptions.wait(box.connection, SERVICE, k.instance_id, Priority == 4)
    terminate(box.connection, k.instance_id)
    box.agent().publish([Message.of(b"", promoted={Region: "K", Priority: 4})])
    [new] = list_instances(box.connection, InstanceQuery(limit=1))
    assert new.instance_id != k.instance_id
    assert new.messages == 1
    assert list_subscriptions(box.connection, subscription_type="instance") == []


def test_an_instance_that_only_waits_can_be_terminated(box: Box, subscriptions: ServiceSubscriptions) -> None:
    waiting = uuid.uuid4()
    subscriptions.wait(box.connection, SERVICE, waiting, Region == "K")
    terminate(box.connection, waiting)
    assert list_subscriptions(box.connection, instance_id=waiting) == []
    with pytest.raises(NotFound):
        terminate(box.connection, waiting)


def test_subscriptions_of_both_types_are_listed_with_all_fields(box: Box, subscriptions: ServiceSubscriptions) -> None:
    box.add_port("Port", "Priority == 9")
    instances = [uuid.uuid4() for _ in range(3)]
    for number, instance in enumerate(instances):
        wait = subscriptions.build_response_wait(SERVICE, instance, (Priority == number) & (Region == "K"), priority=5)
        assert wait.apply(box.connection)
    activations = list_subscriptions(box.connection, subscription_type="activation")
    assert [activation.service_name for activation in activations] == ["Collector", "Port"]
    assert [activation.convoy for activation in activations] == [(Region.key,), ()]
    assert (activations[0].ordered_delivery, activations[0].priority) == (True, 3)
    waiting = list_subscriptions(box.connection, subscription_type="instance")
    assert [subscription.instance_id for subscription in waiting] == instances
    assert len(list_subscriptions(box.connection, service="Collector", limit=2)) == 2
    [one] = list_subscriptions(box.connection, instance_id=instances[1])
    assert (one.type, one.state, one.request_response) == ("instance", ServiceState.STARTED, True)
    assert one.filter == "Orders.Region == 'K' and Orders.Priority == 1"
    assert format_filter(read_subscription_filters(box.connection, [one])[one.subscription_id]) == one.filter
    assert find_subscription(box.connection, str(one.subscription_id)) == one
    assert find_subscription(box.connection, "Collector") == activations[0]


def test_a_service_with_very_many_waiting_instances_does_not_list_them_all(box: Box) -> None:
    waiting = ServiceSubscriptions(box.host(), ServiceClass.ORCHESTRATIONS)
    for _ in range(30):
        waiting.wait(box.connection, SERVICE, uuid.uuid4(), Region == "K")
    with pytest.raises(DefinitionError, match="has more than 10 subscriptions"):
        find_subscription(box.connection, "Collector")
