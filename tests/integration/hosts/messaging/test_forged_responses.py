"""A host whose login is in the wrong hands tries to answer the requests of another host (RR-02, RR-03)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator

import pytest

from postroom import Client, pipelines
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.correlation_tokens import copy_token
from postroom.errors import NotAllowed, PublishFailed
from postroom.message import Context, Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.coordination.running_processes import read_routing_version
from postroom.messagebox.queues import QueueTask
from postroom.operations.ports import send_ports
from postroom.system_properties import BTS
from tests.support.box import Box, Region
from tests.support.contents import Contents
from tests.support.contents.configuration import Subscription
from tests.support.quotes import Quotes, read
from tests.support.two_way import AnsweringAdapter, make_two_way
from tests.support.unchecked_rows import insert_message, insert_part, queue_message, read_tokens
from tests.support.waiting import PATIENCE, wait_until

FORGED = b"forged"


class Intruder:
    """The login of host Other, which receives nothing of the request. It reads whatever it may read."""

    def __init__(self, box: Box, connection: Connection) -> None:
        self._box = box
        self._connection = connection

    def read_waiting(self) -> Subscription:
        [waiting] = [one for one in Contents(self._connection).subscriptions() if one.instance_id is not None]
        return waiting

    def publish_with_token(self, token: str) -> None:
        answered = copy_token(Context().promote(BTS.EpmRRCorrelationToken, token), Context())
        agent = DirectAgent(self._connection, self._box.host("Other"), is_engine=True)
        agent.publish([Message.of(FORGED).with_context(answered)])

    def queue(self, service_class: ServiceClass) -> None:
        """Queue a message for the instance that waits, without the Message Agent."""
        waiting = self.read_waiting()
        message = Message.of(FORGED).with_context(
            copy_token(Context().promote(BTS.EpmRRCorrelationToken, f"RRUid:{waiting.instance_id}"), Context())
        )
        assert message.body is not None
        insert_part(self._connection, message.body.part_id, FORGED)
        insert_message(self._connection, message.message_id, message.context, part_id=message.body.part_id)
        queue_message(
            self._connection,
            message.message_id,
            host_id=self._box.host().host_id,
            subscription_id=waiting.id,
            service_class=service_class,
            service_id=waiting.service_id,
            instance_id=waiting.instance_id,
            priority=1,
            task=QueueTask.JOIN_INSTANCE,
            for_host_instance=waiting.for_host_instance,
        )

    def route(self, service_class: ServiceClass) -> None:
        """Publish a message to the subscription that waits, by its id."""
        waiting = self.read_waiting()
        version = read_routing_version(self._connection)
        part = uuid.uuid4()
        self._connection.execute(
            "SELECT insert_message(%s, gen_random_uuid(), '{}', %s, %s, '{1}', %s, %s, 'body', '', null, %s, %b)",
            (version, [waiting.id], [waiting.instance_id], [part], part, len(FORGED), FORGED),
        )

    def store_response(self, unit: uuid.UUID) -> None:
        """Store a response of its own host for a request of another host."""
        self._connection.execute("SELECT store_response_other(%s, 0, 'text/plain', %b)", (unit, [FORGED]))


@pytest.fixture
def intruder(box: Box) -> Iterator[Intruder]:
    box.add_host("Other")
    with connect(box.url, user=box.host("Other").role_name) as connection:
        yield Intruder(box, connection)


Attack = Callable[[Intruder, ServiceClass], None]


@pytest.mark.parametrize("column", ["correlation_values", "correlation_hash"])
def test_a_host_cannot_read_the_tokens_of_requests(box: Box, intruder: Intruder, column: str) -> None:
    with connect(box.url, user=box.host("Other").role_name) as connection, pytest.raises(NotAllowed):
        read_tokens(connection, column)


def test_the_token_of_a_request_is_not_derived_from_the_instance_that_waits(quotes: Quotes, intruder: Intruder) -> None:
    quotes.start(AnsweringAdapter(lambda body: b"5"), pipelines.PassThrough(), state="stopped")
    caller = quotes.ask()
    guessed = f"{caller.token.rpartition(':')[0]}:{intruder.read_waiting().instance_id}"
    with pytest.raises(PublishFailed):
        intruder.publish_with_token(guessed)
    send_ports.start(quotes.box.connection, "Pricing")
    assert read(caller) == b"5"


@pytest.mark.parametrize("attack", [Intruder.queue, Intruder.route])
def test_a_message_that_is_queued_for_a_caller_without_its_token_is_suspended(
    box: Box, quotes: Quotes, intruder: Intruder, attack: Attack
) -> None:
    quotes.start(AnsweringAdapter(lambda body: b"5"), pipelines.PassThrough(), state="stopped")
    caller = quotes.ask()
    attack(intruder, ServiceClass.MESSAGING_IN_PROCESS)
    wait_until(lambda: caller.future.done() or box.count("suspended") == 2)
    assert not caller.future.done()
    send_ports.start(box.connection, "Pricing")
    assert read(caller) == b"5"


@pytest.mark.parametrize("attack", [Intruder.queue, Intruder.route])
def test_a_message_that_is_queued_for_a_program_without_its_token_is_suspended(
    box: Box, quotes: Quotes, intruder: Intruder, attack: Attack
) -> None:
    box.add_port("Prices", "Orders.Region == 'US'", state="stopped")
    make_two_way(box, "Prices")
    quotes.start_host(AnsweringAdapter(lambda body: b"5"))
    with Client(box.url) as client:
        response = client.start_request(b"order", promoted={Region: "US"}, timeout=PATIENCE)
        attack(intruder, ServiceClass.PROGRAMS)
        wait_until(lambda: response.done() or box.count("suspended") == 2)
        assert not response.done()
        send_ports.start(box.connection, "Prices")
        assert response.result(PATIENCE).data == b"5"


def test_a_host_cannot_take_the_place_of_a_stored_response(box: Box, quotes: Quotes, intruder: Intruder) -> None:
    """A host that receives a copy of the request knows its interchange."""
    quotes.start(AnsweringAdapter(lambda body: b"5"), pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    caller = quotes.ask(key=key)
    intruder.store_response(key)
    send_ports.start(box.connection, "Pricing")
    assert read(caller) == b"5"
    assert read(quotes.ask(key=key)) == b"5"
