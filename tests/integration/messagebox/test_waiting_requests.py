"""Requests that wait for their response at a host instance, in all three publish paths: RR-01 … 03, RR-06."""

from __future__ import annotations

import uuid

import pytest

from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.running_processes import ProcessKind, register_process
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.queues import HostQueues
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.system_properties import BTS
from tests.support.box import Box, Region
from tests.support.publishers import Publisher, PublishPath

MESSAGING = ServiceClass.MESSAGING_IN_PROCESS
SERVICE = SubscribingService(service_id=uuid.UUID(int=7), name="Quotes")


@pytest.fixture
def publisher(box: Box, publish_path: PublishPath, host: Connection) -> Publisher:
    return Publisher(box, publish_path, host, box.add_location() if publish_path is PublishPath.STREAMING else None)


def wait_at(box: Box, host_instance: int) -> uuid.UUID:
    """Create the instance subscription of a request whose caller this host instance holds. Return the instance id."""
    waiting = uuid.uuid4()
    subscriptions = ServiceSubscriptions(box.host(), MESSAGING)
    wait = subscriptions.build_response_wait(
        SERVICE, waiting, Region == "EU", priority=1, for_host_instance=host_instance
    )
    assert wait.apply(box.connection)
    return waiting


def claim(box: Box, host_instance: int) -> list[uuid.UUID]:
    """Claim everything that a host instance may claim. Return the instance ids."""
    claimed = HostQueues("Default").dequeue(
        box.connection,
        claim_id=uuid.uuid4(),
        host_instance=host_instance,
        service_class=MESSAGING,
        limit=10,
    )
    return [message.instance_id for message in claimed]


def test_only_the_host_instance_that_holds_the_caller_claims_the_response(box: Box, publisher: Publisher) -> None:
    box.add_port("Audit", "Region == 'EU'")
    waiting = wait_at(box, 4)
    assert publisher.publish({"region": "EU"}) == 1
    [copy] = claim(box, 5)
    assert copy != waiting
    assert claim(box, 5) == []
    assert claim(box, 4) == [waiting]


def test_responses_of_two_host_instances_are_in_one_publish(box: Box, publisher: Publisher) -> None:
    first, second = wait_at(box, 4), wait_at(box, 5)
    assert publisher.publish({"region": "EU"}) == 1
    assert claim(box, 5) == [second]
    assert claim(box, 4) == [first]


def test_the_responses_of_a_dead_host_instance_are_suspended(box: Box, publisher: Publisher, host: Connection) -> None:
    waiting = wait_at(box, register_process(host, box.host().host_id, ProcessKind.HOST))
    assert publisher.publish({"region": "EU"}) == 1
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    assert box.count("suspended") == 0
    box.connection.execute("DELETE FROM host_instances")
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    assert box.connection.execute(
        "SELECT instance_id, state, error_code, error_description FROM instances"
    ).fetchall() == [
        (
            waiting,
            "suspended, not resumable",
            "CORRELATION",
            (
                "The response could not be correlated to an existing request.\n"
                "The host process that held the caller has ended."
            ),
        )
    ]
    assert publisher.publish({"region": "EU"}) == 0
    assert check(box.connection) == []


def test_the_correlation_type_of_responses_exists_before_any_request(box: Box) -> None:
    """RR-02. A new type would change the routing."""
    [(keys,)] = box.connection.execute(
        "SELECT array_agg(p.key ORDER BY p.key)"
        "  FROM correlation_types t JOIN properties p ON p.id = ANY (t.property_ids) GROUP BY t.id"
    )
    assert keys == [BTS.EpmRRCorrelationToken.key, BTS.RouteDirectToTP.key]


def test_waiting_for_a_response_does_not_change_the_routing(box: Box) -> None:
    version = box.one("SELECT version FROM routing_version")
    wait = ServiceSubscriptions(box.host(), MESSAGING).build_response_wait(
        SERVICE,
        uuid.uuid4(),
        (BTS.EpmRRCorrelationToken == "one") & (BTS.RouteDirectToTP == True),  # noqa: E712
        priority=1,
        for_host_instance=4,
    )
    assert wait.apply(box.connection)
    assert box.one("SELECT version FROM routing_version") == version
    assert box.count("correlations") == 1
