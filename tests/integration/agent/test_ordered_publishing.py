"""Publishes to an ordered send port commit in the order of their numbers, and other publishes do not wait (SND-15)."""

from __future__ import annotations

import random
import threading
import uuid
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.queues import HostQueues
from postroom.operations.ports import send_ports
from postroom.ports.receive_locations import read_receive_locations
from postroom.ports.send_ports import read_send_ports
from tests.support.box import Box, Region, interchange
from tests.support.waiting import PATIENCE, wait_until

QUEUES = HostQueues("Default")
Publish = Callable[[Box, Connection, str, int], None]


def publish_one(box: Box, connection: Connection, region: str, count: int) -> None:
    agent = box.agent(connection=connection)
    for _ in range(count):
        agent.publish([Message.of(b"one", promoted={Region: region})])


def publish_few(box: Box, connection: Connection, region: str, count: int) -> None:
    box.agent(connection=connection).publish(messages(region, 3))


def publish_many(box: Box, connection: Connection, region: str, count: int) -> None:
    box.agent(connection=connection).publish(messages(region, 10))


def publish_without_index(box: Box, connection: Connection, region: str, count: int) -> None:
    box.agent(connection=connection, warm=False).publish(messages(region, 1))


def receive(box: Box, connection: Connection, region: str, count: int) -> None:
    [location] = read_receive_locations(connection)
    lines = b"\n".join(b'{"region": "%s"}' % region.encode() for _ in range(count))
    Receiver(connection, RoutingTable()).receive(location, [interchange(lines)])


LANES: list[Publish] = [publish_one, publish_few, publish_many, publish_without_index, receive]


def messages(region: str, count: int) -> list[Message]:
    return [Message.of(str(number).encode(), promoted={Region: region}) for number in range(count)]


def count_waiting(box: Box) -> int:
    """Return the number of sessions that wait for the order of an instance."""
    return int(
        box.one(
            "SELECT count(*) FROM pg_locks l"
            " JOIN pg_database d ON d.oid = l.database AND d.datname = current_database()"
            " WHERE l.classid = 7005 AND NOT l.granted"
        )
    )


@pytest.mark.parametrize("publish", LANES)
@pytest.mark.parametrize("state", ["started", "stopped"])
def test_a_publish_waits_for_an_earlier_one_to_the_same_port_and_delays_no_other(
    box: Box, publish: Publish, state: str
) -> None:
    box.add_location()
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True, state=state)
    box.add_port("Second", "Orders.Region == 'US'", ordered=True)
    box.add_port("Plain", "Orders.Region == 'UK'")
    role = box.host().role_name
    with (
        connect(box.url, user=role) as first,
        connect(box.url, user=role) as second,
        connect(box.url, user=role) as third,
        ThreadPoolExecutor() as pool,
    ):
        with first.transaction():
            publish(box, first, "EU", 1)
            waiting = pool.submit(publish, box, second, "EU", 1)
            wait_until(lambda: count_waiting(box) == 1, what="the second publish to wait")
            publish(box, third, "UK", 2)
            publish(box, third, "US", 2)
            assert not waiting.done()
            assert sum(one.port == "Ordered" for one in box.instances()) == 0
        waiting.result(PATIENCE)
    if state == "stopped":
        send_ports.start(box.connection, "Ordered")
    rows = [(row.seq, row.counted_in) for row in box.queued_rows() if row.port == "Ordered"]
    transactions = list(dict.fromkeys(transaction for _, transaction in rows))
    assert [transaction for _, transaction in rows] == sorted(
        (transaction for _, transaction in rows), key=transactions.index
    ), "the rows of the two publishes do not alternate"


def test_a_consumer_never_sees_a_number_below_one_that_it_has_seen(box: Box) -> None:
    """Publishers of all lanes, whose messages go to two ordered ports in any order, and a consumer at the same time."""
    box.add_location()
    box.add_port("Ordered", "Orders.Region == 'EU' or Orders.Region == 'all'", ordered=True)
    box.add_port("Second", "Orders.Region == 'US' or Orders.Region == 'all'", ordered=True)
    role = box.host().role_name
    start = threading.Barrier(len(LANES))

    def run(publish: Publish) -> None:
        choose = random.Random(publish.__name__)
        with connect(box.url, user=role) as connection:
            start.wait(PATIENCE)
            for _ in range(15):
                publish(box, connection, choose.choice(["EU", "US", "all"]), 1)

    seen: defaultdict[uuid.UUID, list[int]] = defaultdict(list)

    def consume() -> int:
        claim = uuid.uuid4()
        claimed = QUEUES.dequeue(
            box.connection,
            claim_id=claim,
            host_instance=1,
            service_class=ServiceClass.MESSAGING_IN_PROCESS,
            limit=20,
            ahead=3,
        )
        for message in claimed:
            seen[message.instance_id].append(message.seq)
        return QUEUES.complete(box.connection, claim) if claimed else 0

    with ThreadPoolExecutor() as pool:
        publishers = [pool.submit(run, publish) for publish in LANES]
        while not all(publisher.done() for publisher in publishers):
            consume()
        for publisher in publishers:
            publisher.result()
    while consume():
        pass
    assert len(seen) == 2
    assert all(numbers == sorted(set(numbers)) for numbers in seen.values())
    assert box.count("queued") == 0


def test_two_claims_at_the_same_time_never_have_messages_of_the_same_port(box: Box) -> None:
    for number in range(6):
        box.add_port(f"Ordered {number}", "Orders.Region == 'EU'", ordered=True)
    box.agent().publish(messages("EU", 40))
    delivered: dict[uuid.UUID, list[int]] = {port.port_id: [] for port in read_send_ports(box.connection)}
    lock = threading.Lock()

    def consume(limit: int) -> None:
        with connect(box.url, user=box.host().role_name) as connection:
            while sum(map(len, delivered.values())) < 6 * 40:
                claim = uuid.uuid4()
                claimed = QUEUES.dequeue(
                    connection,
                    claim_id=claim,
                    host_instance=1,
                    service_class=ServiceClass.MESSAGING_IN_PROCESS,
                    limit=limit,
                    ahead=limit,
                )
                with lock:
                    for message in claimed:
                        delivered[message.instance_id].append(message.seq)
                if claimed:
                    QUEUES.complete(connection, claim)

    with ThreadPoolExecutor() as pool:
        for consumer in [pool.submit(consume, limit) for limit in (1, 3, 7, 50)]:
            consumer.result()
    assert all(numbers == sorted(numbers) and len(numbers) == 40 for numbers in delivered.values())
