"""A publish can be the last step of the caller's transaction: complete, publish and subscribe, all or nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import psycopg
import pytest

from postroom.agent.direct.direct_agent import DirectAgent, Outbox
from postroom.agent.direct.direct_batch import MAX_CALLS, DirectBatch, Publication
from postroom.agent.publish import Publisher
from postroom.agent.routing.matching import Matcher
from postroom.agent.routing.table import RoutingTable
from postroom.errors import ClaimLost, MessageBoxUnavailable, PublishFailed
from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.notifications import WakeUp
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.queues import ClaimedMessage, HostQueues
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.operations.ports import send_ports
from postroom.system_properties import BTS
from tests.support.box import Box, Region
from tests.support.cut_connections import cut_before_commit

QUEUES = HostQueues("Default")
ORDERS = SubscribingService(service_id=uuid.UUID(int=7), name="Orders")


@pytest.fixture
def host(box: Box) -> Iterator[Connection]:
    """Yield a connection of the host, which has one message to answer."""
    box.add_port("Orders", "Region == 'request'")
    box.agent().publish([message("request")])
    with connect(box.url, user=box.host().role_name) as connection:
        yield connection


@pytest.fixture(params=["index", "procedure"])
def agent(box: Box, host: Connection, request: pytest.FixtureRequest) -> DirectAgent:
    return DirectAgent(host, box.host(), RoutingTable() if request.param == "index" else None)


@pytest.fixture
def claimed(host: Connection) -> ClaimedMessage:
    [claimed] = QUEUES.dequeue(
        host, claim_id=uuid.uuid4(), host_instance=0, service_class=ServiceClass.MESSAGING_IN_PROCESS, limit=1
    )
    return claimed


@pytest.fixture
def subscriptions(box: Box) -> ServiceSubscriptions:
    return ServiceSubscriptions(box.host(), ServiceClass.ORCHESTRATIONS)


def message(region: str) -> Message:
    return Message.of(b"", promoted={Region: region})


def complete(connection: Connection, claimed: ClaimedMessage) -> None:
    assert QUEUES.complete(connection, claimed.claim_id, [claimed.seq]) == 1


def subscribe(connection: Connection, subscriptions: ServiceSubscriptions, region: str) -> None:
    subscription_id = subscriptions.activate(connection, ORDERS, Region == region)
    subscriptions.set_state(connection, subscription_id, ServiceState.STARTED)


def test_complete_publish_and_subscribe_commit_together(
    box: Box, agent: DirectAgent, claimed: ClaimedMessage, subscriptions: ServiceSubscriptions
) -> None:
    """The published message matches the subscription of its own transaction."""

    def answer(connection: Connection, outbox: Outbox) -> None:
        complete(connection, claimed)
        outbox.publish(message("answer"))
        subscribe(connection, subscriptions, "answer")

    [published] = agent.transaction(answer)
    assert published.subscribers == ("Orders",)
    assert [(row.service_id, row.message_id) for row in box.queued_rows()] == [
        (ORDERS.service_id, published.message_id)
    ]
    assert agent.publish([message("answer")])[0].subscribers == ("Orders",)
    assert check(box.connection) == []


def test_failed_work_is_rolled_back(
    box: Box, agent: DirectAgent, claimed: ClaimedMessage, subscriptions: ServiceSubscriptions
) -> None:
    def fail(connection: Connection, outbox: Outbox) -> None:
        complete(connection, claimed)
        subscribe(connection, subscriptions, "answer")
        outbox.publish(message("answer"))
        raise KeyError("a defect")

    with pytest.raises(KeyError):
        agent.transaction(fail)
    assert (box.count("queued"), box.count("messages"), box.count("subscriptions")) == (1, 1, 1)
    agent.transaction(lambda connection, _: complete(connection, claimed))
    assert box.count("queued") == 0


def test_a_failed_publish_rolls_the_work_back_and_leaves_a_report(
    box: Box, agent: DirectAgent, claimed: ClaimedMessage, subscriptions: ServiceSubscriptions
) -> None:
    """A later publish does not use the subscriptions that were rolled back."""

    def answer(connection: Connection, outbox: Outbox) -> None:
        complete(connection, claimed)
        subscribe(connection, subscriptions, "answer")
        outbox.publish(message("answer"), message("nobody"))

    with pytest.raises(PublishFailed):
        agent.transaction(answer)
    assert (box.queued(), box.suspended()) == ({"Orders": 1}, [("ROUTING", False)])
    box.add_port("Other", "Region == 'other'")
    with pytest.raises(PublishFailed):
        agent.publish([message("answer")])
    assert agent.publish([message("other")])[0].subscribers == ("Other",)
    agent.transaction(lambda connection, _: complete(connection, claimed))
    assert check(box.connection) == []


def test_the_transaction_is_repeated_if_subscriptions_change_meanwhile(
    box: Box, agent: DirectAgent, claimed: ClaimedMessage
) -> None:
    """The change does not wait for the work, because no code of the caller runs under the routing lock."""
    box.add_port("Europe", "Region == 'EU'")
    agent.publish([message("EU")])
    attempts = []

    def answer(connection: Connection, outbox: Outbox) -> None:
        attempts.append(outbox)
        complete(connection, claimed)
        if len(attempts) == 1:
            box.add_port("Late", "Region == 'EU'")
        outbox.publish(message("EU"))

    [published] = agent.transaction(answer)
    assert published.subscribers == ("Europe", "Late")
    assert box.queued() == {"Europe": 2, "Late": 1}


def test_a_stale_index_repeats_the_work_once(box: Box, host: Connection, claimed: ClaimedMessage) -> None:
    agent = DirectAgent(host, box.host(), RoutingTable())
    box.add_port("Europe", "Region == 'EU'")
    agent.publish([message("EU")])
    attempts = []

    def answer(connection: Connection, outbox: Outbox) -> None:
        attempts.append(outbox)
        complete(connection, claimed)
        if len(attempts) == 1:
            with connect(box.url) as other:
                send_ports.stop(other, "Europe")
        outbox.publish(message("EU"))

    agent.transaction(answer)
    assert len(attempts) == 2
    assert box.suspended() == [("PORT_STOPPED", True)]
    assert check(box.connection) == []


@pytest.mark.parametrize("count", [MAX_CALLS, MAX_CALLS + 1])
def test_a_connection_cut_before_the_commit_leaves_nothing(
    box: Box, agent: DirectAgent, claimed: ClaimedMessage, count: int
) -> None:
    """Both for messages that are inserted by calls and for messages that are copied."""
    box.add_port("Europe", "Region == 'EU'")

    def answer(connection: Connection, outbox: Outbox) -> None:
        complete(connection, claimed)
        outbox.publish(*(message("EU") for _ in range(count)))

    with cut_before_commit(box, DirectBatch), pytest.raises(MessageBoxUnavailable):
        agent.transaction(answer)
    assert (box.queued(), box.count("messages")) == ({"Orders": 1}, 1)
    with connect(box.url, user=box.host().role_name) as connection:
        DirectAgent(connection, box.host()).transaction(answer)
    assert (box.queued(), box.count("messages")) == ({"Europe": count}, count)
    assert check(box.connection) == []


def test_hosts_are_woken_after_the_commit(
    box: Box, agent: DirectAgent, host: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = []

    def send(_: WakeUp, hosts: object) -> None:
        states.append((host.info.transaction_status, hosts))

    monkeypatch.setattr(WakeUp, "send", send)
    box.add_port("Europe", "Region == 'EU'")
    agent.transaction(lambda _, outbox: outbox.publish(message("EU")))
    assert states == [(psycopg.pq.TransactionStatus.IDLE, {"default"})]


def test_a_transaction_that_publishes_nothing_commits_without_the_routing_lock(
    box: Box, agent: DirectAgent, claimed: ClaimedMessage
) -> None:
    agent.publish([message("request")])
    with box.connection.transaction():
        box.connection.execute("SELECT change_routing()")
        assert agent.transaction(lambda connection, _: complete(connection, claimed)) == []
    assert box.queued() == {"Orders": 1}


@pytest.mark.parametrize("number", [1, 2, MAX_CALLS + 1], ids=["one call", "two calls", "COPY"])
@pytest.mark.parametrize("routing", [RoutingTable, lambda: None], ids=["index", "procedure"])
def test_messages_are_published_once_together_with_the_completion_of_their_request(
    box: Box,
    host: Connection,
    claimed: ClaimedMessage,
    number: int,
    routing: Callable[[], RoutingTable | None],
) -> None:
    box.add_port("Answers", "Region == 'answer'")

    def publish() -> None:
        Publisher(host, routing()).run(build_batch)

    def build_batch(matcher: Matcher) -> DirectBatch:
        messages = [message("answer") for _ in range(number)]
        publication = Publication(messages=messages, precondition=QUEUES.build_completion(claimed))
        return DirectBatch(box.host(), publication, matcher)

    publish()
    assert claimed.seq not in [row.seq for row in box.queued_rows()]
    assert box.count("queued") == number
    with pytest.raises(ClaimLost):
        publish()
    assert box.count("messages") == number
    assert check(box.connection) == []


def test_a_request_is_completed_although_its_answer_is_an_acknowledgement_without_subscribers(
    box: Box, host: Connection, claimed: ClaimedMessage
) -> None:
    """Such an answer is dropped, so no statement inserts it."""

    def build_batch(matcher: Matcher) -> DirectBatch:
        answer = Message.of(b"", written={BTS.AckType: "ACK"})
        publication = Publication(messages=[answer], precondition=QUEUES.build_completion(claimed))
        return DirectBatch(box.host(), publication, matcher)

    Publisher(host, RoutingTable()).run(build_batch)
    assert box.count("queued") == 0
    with pytest.raises(ClaimLost):
        Publisher(host, RoutingTable()).run(build_batch)
    assert check(box.connection) == []
