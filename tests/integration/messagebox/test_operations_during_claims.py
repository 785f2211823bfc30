"""Operators suspend and terminate instances while hosts claim their messages (INS-08, 09; ORC-21)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService, SubscriptionState
from tests.support.box import Box, Region
from tests.support.publishers import is_waiting_for_lock
from tests.support.waiting import wait_until

SERVICE = SubscribingService(service_id=uuid.UUID(int=7), name="Collector")

_LOCK = 4711


@pytest.fixture
def instance(box: Box, host: Connection, subscriptions: ServiceSubscriptions) -> uuid.UUID:
    """Create an instance of a convoy with one message. Return its id."""
    with host.transaction():
        activation = subscriptions.activate(host, SERVICE, Region.exists(), convoy=[Region])
        subscriptions.set_state(host, activation, SubscriptionState.STARTED)
    publish(box)
    found: uuid.UUID = box.one("SELECT instance_id FROM work_queue")
    return found


@pytest.fixture
def operator(box: Box) -> Iterator[Connection]:
    with connect(box.url) as connection:
        yield connection


def publish(box: Box) -> None:
    box.agent().publish([Message.of(b"", promoted={Region: "K"})])


def claim(host: Connection, limit: int = 10) -> list[int]:
    rows = host.execute(
        "SELECT seq FROM dequeue_in_order_default(gen_random_uuid(), 1, %s::smallint, %s)",
        (ServiceClass.ORCHESTRATIONS, limit),
    )
    return [seq for (seq,) in rows]


@pytest.mark.parametrize("operation", ["suspend_instances", "terminate_instances"])
def test_operators_skip_an_instance_that_is_being_claimed(
    box: Box, host: Connection, operator: Connection, instance: uuid.UUID, operation: str
) -> None:
    publish(box)
    with ThreadPoolExecutor() as pool:
        with host.transaction():
            assert len(claim(host, limit=1)) == 1
            operation_result = pool.submit(
                lambda: operator.execute(f"SELECT * FROM {operation}(%s)", ([instance],)).fetchall()
            )
            wait_until(lambda: is_waiting_for_lock(box, operator), what="the operator to wait for the claim")
        assert operation_result.result(30) == []
    assert (box.count("work_queue"), box.count("suspended_queue"), box.count("convoy_set_instances")) == (2, 0, 1)


def test_a_message_is_not_claimed_while_its_predecessor_is_being_suspended(
    box: Box, host: Connection, operator: Connection, instance: uuid.UUID
) -> None:
    """The suspension commits while the second message is being claimed. A trigger blocks the claim after its first
    statement until then."""
    box.connection.execute(
        f"CREATE FUNCTION wait_for_lock() RETURNS trigger LANGUAGE plpgsql AS"
        f" 'BEGIN PERFORM pg_advisory_xact_lock_shared({_LOCK}); RETURN NULL; END'"
    )
    box.connection.execute("CREATE TRIGGER wait_for_lock AFTER UPDATE ON default_q EXECUTE FUNCTION wait_for_lock()")
    with ThreadPoolExecutor() as pool:
        with operator.transaction():
            assert operator.execute("SELECT * FROM suspend_instances(%s)", ([instance],)).fetchall() == [(instance,)]
            publish(box)
            box.connection.execute(f"SELECT pg_advisory_lock({_LOCK})")
            claimed = pool.submit(claim, host)
            wait_until(lambda: is_waiting_for_lock(box, host), what="the claim to wait for the lock")
        box.connection.execute(f"SELECT pg_advisory_unlock({_LOCK})")
        assert claimed.result(30) == []
    assert box.count("work_queue WHERE claim_id IS NULL") == 1
    operator.execute("SELECT * FROM resume_instances(%s)", ([instance],))
    assert claim(host) == box.one("SELECT array_agg(seq ORDER BY seq) FROM work_queue")
