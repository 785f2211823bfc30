"""The caching service applies published messages to lookups: SUB-06, DEQ-01."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from postroom import Application
from postroom.hosts import HostInstance
from postroom.hosts.caching import MAX_ENTRY_SIZE
from postroom.message import FRAGMENT_SIZE, Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.instances import Instance, InstanceQuery, InstanceState, list_instances
from postroom.messagebox.lookups import list_lookups
from postroom.messagebox.maintenance.check import find_violations
from postroom.operations.deployment.backlog import Backlog, apply_backlog_decisions
from postroom.operations.hosts import set_service_class
from postroom.operations.instances.changes import change_all
from tests.integration.hosts.conftest import SETTINGS
from tests.support.contents import Contents
from tests.support.deployment import deploy
from tests.support.lookups import (
    CustomerId,
    Kind,
    build_customer,
    count_waiting,
    customers_app,
    publish,
    publish_customer,
    read_customer,
)
from tests.support.waiting import wait_until

StartHost = Callable[[], HostInstance]


@pytest.fixture
def connection(database: str) -> Iterator[Connection]:
    with connect(database) as opened:
        deploy(opened, customers_app())
        yield opened


@pytest.fixture
def start(database: str, tmp_path: Path) -> Iterator[StartHost]:
    """Return a function that starts a host instance with the login of its host."""
    with ExitStack() as stack:
        yield lambda: stack.enter_context(HostInstance(database, "Main", tmp_path, as_role=True, settings=SETTINGS))


def wait_until_applied(connection: Connection) -> None:
    wait_until(lambda: count_waiting(connection) == 0, what="the messages of the lookup")


def wait_for_suspended(connection: Connection) -> Instance:
    query = InstanceQuery(states=[InstanceState.SUSPENDED])
    [suspended] = wait_until(lambda: list_instances(connection, query))
    return suspended


def test_a_lookup_subscribes_with_the_service_class_of_the_caching_service(connection: Connection) -> None:
    """SUB-06: the caching service creates subscriptions."""
    [subscription] = Contents(connection).subscriptions()
    assert (subscription.service_name, subscription.service_class) == ("Customers", ServiceClass.CACHING)


def test_a_lookup_keeps_the_newest_message_of_each_key(connection: Connection, start: StartHost) -> None:
    """SUB-06: the caching service receives published messages through the queue of its host."""
    start()
    publish_customer(connection, "C-1", b"first")
    publish_customer(connection, "C-2", b"other")
    publish_customer(connection, "C-1", b"second")
    wait_until_applied(connection)
    assert (read_customer(connection, "C-1"), read_customer(connection, "C-2")) == (b"second", b"other")
    assert read_customer(connection, "C-3") is None
    assert list_instances(connection, InstanceQuery()) == []
    assert find_violations(connection) == []


def test_the_polling_interval_and_the_threads_are_those_of_the_service_class(
    connection: Connection, start: StartHost
) -> None:
    """DEQ-01: the caching service has the threads of its own service class."""
    instance = start()

    def count_threads() -> int:
        return sum(thread.name.startswith("caching ") for thread in threading.enumerate())

    assert instance.caching is not None
    assert count_threads() == 1
    set_service_class(connection, "caching", dequeue_threads=3)
    wait_until(lambda: count_threads() == 3)


@pytest.mark.parametrize("size", [FRAGMENT_SIZE + 1, MAX_ENTRY_SIZE])
def test_an_entry_has_the_whole_body_of_a_large_message(connection: Connection, start: StartHost, size: int) -> None:
    """The MessageBox has a large body in fragments."""
    start()
    body = random.Random(7).randbytes(size)
    publish_customer(connection, "C-1", body)
    wait_until_applied(connection)
    assert read_customer(connection, "C-1") == body


def test_a_host_without_lookups_does_not_poll_for_them(database: str, start: StartHost) -> None:
    with connect(database) as connection:
        deploy(connection, Application("empty"))
        instance = start()
        assert instance.caching is None
        deploy(connection, customers_app())
        wait_until(lambda: instance.caching is not None)
        publish_customer(connection, "C-1", b"first")
        wait_until_applied(connection)
        assert read_customer(connection, "C-1") == b"first"


def test_a_message_with_an_empty_body_deletes_the_entry(connection: Connection, start: StartHost) -> None:
    start()
    publish_customer(connection, "C-1", b"first")
    publish_customer(connection, "C-2", b"first")
    wait_until_applied(connection)
    publish_customer(connection, "C-1", b"")
    publish_customer(connection, "C-2", None)
    wait_until_applied(connection)
    assert (read_customer(connection, "C-1"), read_customer(connection, "C-2")) == (None, None)
    publish_customer(connection, "C-1", b"again")
    wait_until_applied(connection)
    assert read_customer(connection, "C-1") == b"again"


@pytest.mark.parametrize("newer", [b"newer", None])
def test_an_older_message_that_is_applied_later_changes_nothing(
    connection: Connection, start: StartHost, newer: bytes | None
) -> None:
    """The older message is suspended, and resumed after the newer one was applied. It does not bring back an entry that
    was deleted in the meantime."""
    publish_customer(connection, "C-1", b"older")
    change_all(connection, "suspend", InstanceQuery())
    publish_customer(connection, "C-1", newer)
    start()
    wait_until_applied(connection)
    assert read_customer(connection, "C-1") == newer
    assert change_all(connection, "resume", InstanceQuery()).changed == 1
    wait_until(lambda: list_instances(connection, InstanceQuery()) == [])
    assert read_customer(connection, "C-1") == newer


def test_several_host_instances_apply_the_messages_of_one_key(connection: Connection, start: StartHost) -> None:
    set_service_class(connection, "caching", dequeue_threads=3)
    instances = [start(), start()]
    for number in range(300):
        publish_customer(connection, f"C-{number % 3}", b"" if number % 7 == 0 else b"%d" % number)
    wait_until_applied(connection)
    assert [read_customer(connection, f"C-{key}") for key in range(3)] == [b"297", b"298", b"299"]
    assert list_instances(connection, InstanceQuery()) == []
    assert sum(instance.caching_counts["finished"] for instance in instances) == 300
    assert find_violations(connection) == []


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (build_customer(None, b"x"), "it has no Crm.CustomerId"),
        (
            Message.of(b"x", promoted={Kind: "customer"}, written={CustomerId: "C-1"}),
            "Crm.CustomerId is written in it, and not promoted",
        ),
        (build_customer("C-1", b"x" * (1024 * 1024 + 1)), "its body has 1,048,577 bytes"),
    ],
)
def test_a_message_that_cannot_be_an_entry_is_suspended(
    connection: Connection, start: StartHost, message: Message, reason: str
) -> None:
    start()
    publish(connection, message)
    publish_customer(connection, "C-2", b"good")
    suspended = wait_for_suspended(connection)
    assert (suspended.error_code, suspended.service) == ("LOOKUP", "Customers")
    assert reason in (suspended.error_description or "")
    wait_until_applied(connection)
    assert read_customer(connection, "C-2") == b"good"


def test_the_messages_of_a_removed_lookup_are_kept_until_it_is_declared_again(
    connection: Connection, start: StartHost
) -> None:
    """The entries go with the lookup. Its messages have the decision of the operator."""
    publish_customer(connection, "C-1", b"waiting")
    deploy(connection, Application("crm"), backlog=Backlog.KEEP)
    assert find_violations(connection) == []
    start()
    assert wait_for_suspended(connection).error_code == "PORT_GONE"
    plan = deploy(connection, customers_app())
    assert "gets back" in next(step.note for step in plan.steps if step.name == "Customers")
    change_all(connection, "resume", InstanceQuery())
    wait_until(lambda: read_customer(connection, "C-1") == b"waiting")


def test_the_messages_of_a_removed_lookup_can_be_rerouted(connection: Connection, start: StartHost) -> None:
    publish_customer(connection, "C-1", b"waiting")
    app = Application("crm")
    app.property(Kind, CustomerId)
    app.lookup("Clients", key=CustomerId, filter=Kind == "customer")
    deploy(connection, app, backlog=Backlog.REROUTE)
    apply_backlog_decisions(connection, "crm")
    start()
    wait_until(lambda: [listing.entries for listing in list_lookups(connection)] == [1])
