"""Durable subscriptions of programs: client.subscribe."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import timedelta

import pytest

from postroom.client.client import Client
from postroom.client.subscription import Received, Subscription
from postroom.errors import BadFilter, BadValue, ClaimLost, StateError
from postroom.message import FRAGMENT_SIZE, Message
from postroom.messagebox.connection import connect, read_value
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from tests.support.box import Box, Region
from tests.support.changes import resume
from tests.support.waiting import PATIENCE, wait_until

EU = Region == "EU"


@pytest.fixture
def client(box: Box) -> Iterator[Client]:
    with Client(box.url) as client:
        yield client


def publish(client: Client, *bodies: bytes) -> None:
    client.publish_many([Message.of(body, promoted={Region: "EU"}) for body in bodies])


def receive(subscription: Subscription) -> Received:
    received = subscription.receive(timeout=PATIENCE)
    assert received is not None
    return received


def test_a_program_receives_the_messages_that_match_its_filter(box: Box, client: Client) -> None:
    """SUB-01."""
    with client.subscribe("billing", EU) as subscription:
        published = client.publish(b"one", promoted={Region: "EU"})
        assert published.subscribers == ("billing",)
        received = receive(subscription)
        assert (received.message.data, received.message.message_id) == (b"one", published.message_id)
        assert received.message.context[Region] == "EU"
        assert received.attempt == 1
        received.complete()
        assert subscription.receive(timeout=0) is None
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []


def test_messages_wait_while_no_program_runs(box: Box, client: Client) -> None:
    client.subscribe("billing", EU).close()
    publish(client, b"one", b"two")
    with Client(box.url) as other, other.subscribe("billing", "Orders.Region == 'EU'") as subscription:
        bodies = []
        for received in subscription:
            bodies.append(received.message.data)
            received.complete()
            if len(bodies) == 2:
                break
    assert bodies == [b"one", b"two"]


def test_a_waiting_program_is_woken_by_a_publish(client: Client) -> None:
    with client.subscribe("billing", EU) as subscription:
        found: list[Received] = []
        waiting = threading.Thread(target=lambda: found.append(receive(subscription)))
        waiting.start()
        publish(client, b"one")
        waiting.join()
        assert found[0].message.data == b"one"


def test_two_programs_share_the_messages_of_a_name(box: Box, client: Client) -> None:
    with Client(box.url) as other_client:
        first = client.subscribe("billing", EU, prefetch=1)
        second = other_client.subscribe("billing", EU, prefetch=1)
        publish(client, b"one", b"two")
        assert {receive(first).message.data, receive(second).message.data} == {b"one", b"two"}
        first.close()
        second.close()


def test_a_message_that_is_not_ended_is_received_again_when_its_lease_expires(box: Box, client: Client) -> None:
    with client.subscribe("billing", EU, lease=timedelta(seconds=1)) as subscription:
        publish(client, b"one")
        late = receive(subscription)

        def is_received_again() -> bool:
            run_all_jobs_once(box.connection)
            return subscription.receive(timeout=0) is not None

        wait_until(is_received_again)
        with pytest.raises(ClaimLost, match="has expired"):
            late.complete()
        with pytest.raises(ClaimLost, match="has expired"):
            late.extend()


def test_an_extended_lease_keeps_the_message(box: Box, client: Client) -> None:
    with client.subscribe("billing", EU, lease=timedelta(seconds=1)) as subscription:
        publish(client, b"one")
        received = receive(subscription)
        received.extend(timedelta(hours=1))
        expired = "SELECT dead_processes_cleanup(p_now => clock_timestamp() + interval '59 minutes')"
        assert read_value(box.connection, expired) == 0
        received.complete()


def test_a_lease_does_not_grow_when_the_clock_is_set_back(box: Box, client: Client) -> None:
    with client.subscribe("billing", EU, lease=timedelta(minutes=1)) as subscription:
        publish(client, b"one")
        receive(subscription)
        back = "SELECT dead_processes_cleanup(p_now => clock_timestamp() - interval '1 hour')"
        assert read_value(box.connection, back) == 1


def test_a_program_that_is_killed_loses_no_message(box: Box, client: Client) -> None:
    client.subscribe("billing", EU).close()
    publish(client, b"one")
    code = (
        "import sys, time; from datetime import timedelta; from postroom.client.client import Client; "
        "client = Client(sys.argv[1]); "
        "subscription = client.subscribe('billing', \"Orders.Region == 'EU'\", lease=timedelta(seconds=1)); "
        "print(subscription.receive().message.data, flush=True); time.sleep(600)"
    )
    with subprocess.Popen([sys.executable, "-c", code, box.url], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"b'one'\n"
        os.kill(process.pid, signal.SIGKILL)
    with client.subscribe("billing", EU) as subscription:

        def is_received() -> bool:
            run_all_jobs_once(box.connection)
            return subscription.receive(timeout=0) is not None

        wait_until(is_received)


KILLED = """
import os, sys
from postroom.client.client import Client
with Client(sys.argv[1]) as client, client.subscribe("billing", "Orders.Region == 'EU'", max_attempts=3) as own:
    while (received := own.receive(timeout=0)) is not None:
        if received.message.data == b"poison":
            os._exit(9)
        print(received.message.data.decode(), received.attempt, flush=True)
        received.complete()
"""


def expire_leases(box: Box) -> None:
    read_value(box.connection, "SELECT dead_processes_cleanup(p_now => clock_timestamp() + interval '1 minute')")


def test_a_message_that_kills_its_program_is_suspended_and_the_others_are_received(box: Box, client: Client) -> None:
    client.subscribe("billing", EU).close()
    publish(client, b"one", b"poison", b"two", b"three")
    deaths, received = 0, ""
    while True:
        run = subprocess.run([sys.executable, "-c", KILLED, box.url], capture_output=True, text=True, check=False)
        received += run.stdout
        if run.returncode == 0:
            break
        assert run.returncode == 9, run.stderr
        deaths += 1
        expire_leases(box)
    assert deaths == 3
    assert sorted(received.split()[::2]) == ["one", "three", "two"]
    assert box.suspended() == [("PROGRAM", True)]
    assert "did not end it before its lease expired, 3 times" in box.read_error()
    assert check(box.connection) == []


def test_deliveries_are_counted_and_a_suspect_is_received_alone(box: Box, client: Client) -> None:
    with client.subscribe("billing", EU, max_attempts=4) as subscription:
        publish(client, b"one", b"two")
        for attempt in (1, 2):
            assert [receive(subscription).attempt for _ in range(2)] == [attempt, attempt]
            expire_leases(box)
        first = receive(subscription)
        assert (first.message.data, first.attempt) == (b"one", 3)
        publish(client, b"three")
        other = receive(subscription)
        assert other.message.data == b"three", "it is no suspect"
        assert subscription.receive(timeout=0) is None, "another suspect waits until the first one is ended"
        first.complete()
        assert receive(subscription).message.data == b"two"


def test_a_resumed_message_is_attempted_as_often_again(box: Box, client: Client) -> None:
    with client.subscribe("billing", EU, max_attempts=3) as subscription:
        publish(client, b"one")
        for _ in range(2):
            for _ in range(3):
                received = receive(subscription)
                expire_leases(box)
            assert box.suspended() == [("PROGRAM", True)]
            resume(box.connection, received.instance_id)
        receive(subscription).complete()


def test_without_a_maximum_a_message_is_received_again_and_again(box: Box, client: Client) -> None:
    with client.subscribe("billing", EU, max_attempts=None) as subscription:
        publish(client, b"one", b"two")
        for attempt in range(1, 8):
            assert [receive(subscription).attempt for _ in range(2)] == [attempt, attempt]
            expire_leases(box)
    assert box.suspended() == []


def test_a_program_cannot_subscribe_under_the_name_of_a_send_port(box: Box, client: Client) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    with pytest.raises(StateError, match="send port group 'Europe'"):
        client.subscribe("Europe", EU)
    assert box.count("subscriptions") == 1


def test_times_can_be_seconds(client: Client) -> None:
    with client.subscribe("billing", EU, lease=30, expire_after=86400.0) as subscription:
        publish(client, b"one")
        received = receive(subscription)
        received.extend(60)
        received.retry(0)
        assert receive(subscription).attempt == 2


def test_a_generator_of_messages_is_published(box: Box, client: Client) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    published = client.publish_many(Message.of(b"", promoted={Region: "EU"}) for _ in range(3))
    assert [one.subscribers for one in published] == [("Europe",)] * 3
    for wrong in (Message.of(b""), b"", [b""], None):
        with pytest.raises(BadValue, match="publish_many needs"):
            client.publish_many(wrong)  # type: ignore[arg-type]


def test_the_messages_of_a_removed_subscription_are_suspended(box: Box, client: Client) -> None:
    subscription = client.subscribe("billing", EU, expire_after=None, prefetch=1)
    publish(client, b"one", b"two")
    receive(subscription)
    subscription.remove()
    run_all_jobs_once(box.connection)
    assert box.suspended() == [], "a program may still work on a message"
    expire_leases(box)
    run_all_jobs_once(box.connection)
    assert box.suspended() == [("SUBSCRIPTION_EXPIRED", True)] * 2
    assert "A program removed the subscription billing." in box.read_error()
    with client.subscribe("billing", EU) as again:
        resume(box.connection, box.suspended_rows()[0].instance_id)
        receive(again).complete()


def test_a_failed_message_is_suspended_with_the_reason_and_can_be_resumed(box: Box, client: Client) -> None:
    with client.subscribe("billing", EU) as subscription:
        publish(client, b"one")
        received = receive(subscription)
        received.fail("The account is closed.")
        assert box.suspended() == [("PROGRAM", True)]
        resume(box.connection, received.instance_id)
        again = receive(subscription)
        assert again.message.message_id == received.message.message_id
        again.complete()


def test_a_retried_message_is_received_again_with_the_next_attempt(client: Client) -> None:
    with client.subscribe("billing", EU) as subscription:
        publish(client, b"one")
        receive(subscription).retry(timedelta(), "The ledger is locked.")
        assert receive(subscription).attempt == 2


def test_fetched_messages_return_to_the_queue_at_close(box: Box, client: Client) -> None:
    with client.subscribe("billing", EU, prefetch=3) as subscription:
        publish(client, b"one", b"two", b"three")
        received = receive(subscription)
    assert box.count("unclaimed") == 2
    with pytest.raises(StateError, match="is closed"):
        received.complete()


def test_a_changed_filter_replaces_the_subscription(box: Box, client: Client) -> None:
    client.subscribe("billing", EU).close()
    publish(client, b"one")
    with client.subscribe("billing", Region == "US") as subscription:
        assert client.publish(b"us", promoted={Region: "US"}).subscribers == ("billing",)
        assert [receive(subscription).message.data for _ in range(2)] == [b"one", b"us"]
    assert box.count("subscriptions") == 1


def test_a_removed_subscription_receives_nothing_more(box: Box, client: Client) -> None:
    box.add_port("Other", "Orders.Region == 'EU'")
    client.subscribe("billing", EU).remove()
    assert client.publish(b"", promoted={Region: "EU"}).subscribers == ("Other",)


def test_an_unused_subscription_expires_and_its_messages_are_suspended(box: Box, client: Client) -> None:
    client.subscribe("billing", EU, expire_after=timedelta(days=1)).close()
    client.subscribe("kept", EU, expire_after=None).close()
    publish(client, b"one")
    assert read_value(box.connection, "SELECT expire_program_subscriptions(now() + interval '25 hours')") == 1
    assert box.suspended() == [("SUBSCRIPTION_EXPIRED", True)]
    assert client.publish(b"", promoted={Region: "EU"}).subscribers == ("kept",)
    with client.subscribe("billing", EU) as subscription:
        resume(box.connection, box.suspended_rows()[0].instance_id)
        assert receive(subscription).message.data == b"one"
    assert check(box.connection) == []


def test_a_large_body_is_read_from_the_messagebox(client: Client) -> None:
    body = b"x" * (2 * FRAGMENT_SIZE + 1)
    with client.subscribe("billing", EU) as subscription:
        publish(client, body)
        received = receive(subscription)
        assert received.message.data == body
        received.complete()


def test_a_subscription_survives_lost_connections(box: Box, client: Client) -> None:
    with client.subscribe("billing", EU) as subscription:
        own = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database()"
        with connect(box.url) as administrator:
            administrator.execute(f"{own} AND application_name = 'postroom client'")
        with Client(box.url) as publisher:
            publish(publisher, b"one")
        receive(subscription).complete()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"prefetch": 0}, "prefetch is 0"),
        ({"lease": timedelta(milliseconds=1)}, "too short"),
        ({"lease": 0.5}, "too short"),
        ({"lease": "a minute"}, "lease is 'a minute', but must be a number of seconds or a timedelta"),
        ({"expire_after": "never"}, "expire_after is 'never'"),
        ({"max_attempts": 2}, "max_attempts is 2"),
    ],
)
def test_wrong_settings_are_refused(client: Client, settings: dict[str, object], message: str) -> None:
    with pytest.raises(BadValue, match=message):
        client.subscribe("billing", EU, **settings)  # type: ignore[arg-type]


def test_an_empty_name_and_a_wrong_filter_are_refused(client: Client) -> None:
    with pytest.raises(BadValue, match="name of a subscription is empty"):
        client.subscribe(" ", EU)
    with pytest.raises(BadFilter):
        client.subscribe("billing", "Orders.Region =")
