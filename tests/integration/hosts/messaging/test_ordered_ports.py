"""An ordered send port sends its messages in the order in which they were published (SND-11 … 14, ACC-50)."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from postroom import Schedule
from postroom.adapters import Attempt
from postroom.errors import DeliveryFailure, DeliveryRefused, StateError
from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import connect
from postroom.messagebox.instances import InstanceQuery, InstanceState, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import HostQueues
from postroom.operations.ports import groups, send_ports
from postroom.operations.ports.enlistment import resubscribe_port
from postroom.ports.send_ports import read_send_ports
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.integration.hosts.dequeue.test_takeover import (
    complete_as_another,
    count_claimed,
    detect_dead_instances,
    start_blocked_process,
)
from tests.support import changes
from tests.support.box import Box, Region
from tests.support.contents import Contents
from tests.support.recording_adapter import BlockedSend, RecordingAdapter
from tests.support.waiting import PATIENCE, wait_until

Behave = Callable[[Message, Attempt], None]


def order(number: int) -> Message:
    return Message.of(str(number).encode(), promoted={Region: "EU"})


def publish(box: Box, numbers: range, *, batch: int = 1) -> None:
    """Publish messages in order, ``batch`` in each transaction."""
    agent = box.agent()
    for start in range(numbers.start, numbers.stop, batch):
        agent.publish([order(number) for number in range(start, min(start + batch, numbers.stop))])


def numbers(recorder: RecordingAdapter) -> list[int]:
    return [int(body) for body in recorder.bodies]


def fail_number(failing: int, error: Exception | None = None) -> Behave:
    def behave(message: Message, attempt: Attempt) -> None:
        assert message.body is not None
        if int(message.body.data) == failing:
            raise error or DeliveryRefused("The receiver refuses it.")

    return behave


def port_id(box: Box, name: str = "Ordered") -> uuid.UUID:
    result: uuid.UUID = box.port(name).port_id
    return result


def test_two_host_instances_deliver_in_the_order_of_publishing(box: Box, start_host: StartHost) -> None:
    """ACC-50."""
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True)
    recorder = RecordingAdapter()
    start_host(recorder)
    start_host(recorder)
    publish(box, range(60))
    publish(box, range(60, 500), batch=40)
    wait_until(lambda: box.count("queued") == 0, what="all messages to be delivered")
    assert numbers(recorder) == list(range(500))
    sequence = [sent.attempt.sequence_number or 0 for sent in recorder.sent]
    assert sequence == sorted(set(sequence)), "the number lets a receiver check the order"
    assert len({sent.attempt.instance_id for sent in recorder.sent}) == 500, "an idempotency key for each message"
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []


def test_a_failed_message_is_suspended_not_resumable_and_the_others_are_sent(
    box: Box, start_host: StartHost, caplog: pytest.LogCaptureFixture
) -> None:
    """SND-12, INS-13, ACC-50."""
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True, retry_count=0)
    recorder = RecordingAdapter(fail_number(25))
    start_host(recorder)
    start_host(recorder)
    publish(box, range(50))
    wait_until(lambda: box.count("queued") == 0, what="all other messages")
    assert numbers(recorder) == [number for number in range(50) if number != 25]
    assert box.suspended() == [("DELIVERY_REFUSED", False)]
    [failed] = list_instances(box.connection, InstanceQuery())
    assert failed.state is InstanceState.SUSPENDED_NOT_RESUMABLE
    [attempt] = [one for one in recorder.attempts if one.body == b"25"]
    assert failed.instance_id == attempt.attempt.instance_id
    logged = [one.__dict__["instance_id"] for one in caplog.records if "was suspended" in one.message]
    assert logged == [failed.instance_id]
    with pytest.raises(StateError) as refused:
        changes.resume(box.connection, failed.instance_id)
    assert "would be out of order" in refused.value.why
    assert f"postroom message save {failed.instance_id}" in refused.value.hint
    changes.terminate(box.connection, failed.instance_id)
    assert box.count("instances") == 0
    assert check(box.connection) == []


def test_a_port_that_stops_at_a_failure_continues_in_order_when_it_is_resumed(box: Box, start_host: StartHost) -> None:
    """SND-13, ACC-50."""
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True, stop_on_failure=True, retry_count=0)
    recorder = RecordingAdapter(fail_number(25))
    instance = start_host(recorder)
    start_host(recorder)
    publish(box, range(40))
    wait_until(lambda: box.suspended() == [("DELIVERY_REFUSED", True)])
    wait_until(lambda: count_claimed(box) == 0, what="the rest of the claim to be released")
    publish(box, range(40, 50))
    [stopped] = list_instances(box.connection, InstanceQuery())
    assert (stopped.instance_id, stopped.state) == (port_id(box), InstanceState.SUSPENDED)
    assert stopped.messages == 25, "the failed message and all messages behind it"
    assert numbers(recorder) == list(range(25))
    recorder.behave = lambda message, attempt: None
    changes.resume(box.connection, stopped.instance_id)
    wait_until(lambda: box.count("instances") == 0, what="all messages")
    assert numbers(recorder) == list(range(50))
    assert instance.counts["discarded"] == 0


def test_the_other_messages_wait_while_the_first_one_is_retried(box: Box, start_host: StartHost) -> None:
    """SND-14."""
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True, retry_count=2, retry_seconds=0)

    def succeed_at_third_attempt(message: Message, attempt: Attempt) -> None:
        if attempt.number < 3:
            raise DeliveryFailure("Not yet.")

    recorder = RecordingAdapter(succeed_at_third_attempt)
    start_host(recorder)
    start_host(recorder)
    publish(box, range(12))
    wait_until(lambda: box.count("instances") == 0)
    assert numbers(recorder) == list(range(12))
    assert [int(one.body) for one in recorder.attempts] == [number for number in range(12) for _ in range(3)]
    first, second, third = (one.attempt for one in recorder.attempts[:3])
    assert first.instance_id == second.instance_id == third.instance_id
    assert first.sequence_number == third.sequence_number


def test_other_ports_continue_while_an_ordered_port_waits(box: Box, start_host: StartHost) -> None:
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True, stop_on_failure=True, retry_count=0)
    box.add_port("Second", "Orders.Region == 'EU'", ordered=True)
    box.add_port("Plain", "Orders.Region == 'EU'")

    def fail_at_the_first_port(message: Message, attempt: Attempt) -> None:
        if message.context[BTS.SPName] == "Ordered":
            raise DeliveryRefused("No.")

    recorder = RecordingAdapter(fail_at_the_first_port)
    start_host(recorder)
    publish(box, range(20))
    wait_until(lambda: len(recorder.sent) == 40)
    assert [int(one.body) for one in recorder.sent if one.port == "Second"] == list(range(20))
    assert len([one for one in recorder.attempts if one.port == "Ordered"]) == 1


def test_messages_of_a_stopped_port_are_sent_before_newer_ones(box: Box, start_host: StartHost) -> None:
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True)
    publish(box, range(3))
    send_ports.stop(box.connection, "Ordered")
    publish(box, range(3, 6))
    publish(box, range(6, 20), batch=7)
    recorder = RecordingAdapter()
    start_host(recorder)
    wait_until(lambda: len(recorder.sent) == 3, what="the messages from before the stop")
    assert send_ports.start(box.connection, "Ordered").resumed == 17
    publish(box, range(20, 25))
    wait_until(lambda: box.count("instances") == 0)
    assert numbers(recorder) == list(range(25))


def test_messages_through_a_stopped_group_hold_back_later_ones(box: Box, start_host: StartHost) -> None:
    """The order is that of the port, whichever subscription matched."""
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True)
    box.add_group("Everyone", ["Ordered"], "Orders.Region == 'all'")
    groups.stop(box.connection, "Everyone")
    agent = box.agent()
    regions = ["EU", "all", "EU", "all", "EU", "EU"]
    agent.publish([Message.of(str(n).encode(), promoted={Region: region}) for n, region in enumerate(regions)])
    recorder = RecordingAdapter()
    start_host(recorder)
    wait_until(lambda: len(recorder.sent) == 1)
    groups.start(box.connection, "Everyone")
    wait_until(lambda: box.count("instances") == 0)
    assert numbers(recorder) == list(range(6))


def test_another_instance_continues_in_order_after_one_stopped(box: Box, start_host: StartHost) -> None:
    """The first instance stops while it sends the second message. It releases the messages in its memory queue."""
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True)
    publish(box, range(10))
    at_second, released = threading.Event(), threading.Event()

    def block_second(message: Message, attempt: Attempt) -> None:
        if attempt.sequence_number == second:
            at_second.set()
            assert released.wait(PATIENCE)

    second = box.queued_rows()[1].seq
    stopping, continuing = RecordingAdapter(block_second), RecordingAdapter()
    instance = start_host(stopping)
    assert at_second.wait(PATIENCE)
    with ThreadPoolExecutor() as pool:
        stopped = pool.submit(instance.stop)
        wait_until(
            lambda: len(instance.messaging.unfinished_seqs) == 1,
            what="only the message in progress left in memory",
        )
        released.set()
        stopped.result(PATIENCE)
    assert numbers(stopping) == [0, 1]
    assert box.count("unclaimed") == 8
    start_host(continuing)
    wait_until(lambda: box.count("queued") == 0)
    assert numbers(continuing) == list(range(2, 10))


def test_another_instance_continues_in_order_after_a_kill(box: Box, start_host: StartHost, tmp_path: Path) -> None:
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True)
    publish(box, range(50))
    with start_blocked_process(box, tmp_path) as process:
        wait_until(lambda: count_claimed(box) > 0)
        recorder = RecordingAdapter()
        start_host(recorder)
        publish(box, range(50, 60))
        process.kill()
        process.wait()
        assert recorder.attempts == [], "the port belongs to the process that has claimed its first message"
    wait_until(lambda: detect_dead_instances(box) > 0)
    wait_until(lambda: box.count("queued") == 0)
    assert numbers(recorder) == list(range(60))


def test_outcomes_of_a_claim_that_was_taken_over_are_discarded(box: Box, start_host: StartHost) -> None:
    """A late host instance repeats messages, in order and with their numbers, and deletes nothing."""
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True)
    blocked = BlockedSend()
    late = RecordingAdapter(blocked)
    instance = start_host(late)
    publish(box, range(10))
    wait_until(lambda: len(late.attempts) == 1)
    complete_as_another(box)
    publish(box, range(10, 15))
    blocked.released.set()
    wait_until(lambda: box.count("queued") == 0)
    assert numbers(late) == sorted(numbers(late))
    assert numbers(late)[-5:] == list(range(10, 15))
    assert instance.counts["discarded"] == len(late.sent) - 5
    assert check(box.connection) == []


def test_an_operator_suspends_and_terminates_an_ordered_port_as_one_instance(box: Box) -> None:
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True)
    publish(box, range(5))
    changes.suspend(box.connection, port_id(box))
    publish(box, range(5, 8))
    [instance] = list_instances(box.connection, InstanceQuery())
    assert (instance.state, instance.messages) == (InstanceState.SUSPENDED, 8)
    assert (
        box.connection.execute(
            "SELECT * FROM dequeue_messages_default(%s, 1, 'messaging_in_process', 9)", (uuid.uuid4(),)
        ).fetchall()
        == []
    )
    changes.terminate(box.connection, port_id(box), all_messages=True)
    assert box.count("instances") == 0
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0


def test_errors_of_an_ordered_port_are_routed_and_delivery_continues(box: Box, start_host: StartHost) -> None:
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True, retry_count=0, route_failures=True)
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'")

    def fail_even_numbers(message: Message, attempt: Attempt) -> None:
        assert message.body is not None
        if message.context[BTS.SPName] == "Ordered" and int(message.body.data) % 2 == 0:
            raise DeliveryRefused("No.")

    recorder = RecordingAdapter(fail_even_numbers)
    start_host(recorder)
    publish(box, range(10))
    wait_until(lambda: box.count("instances") == 0)
    assert [int(one.body) for one in recorder.sent if one.port == "Ordered"] == [1, 3, 5, 7, 9]
    assert sorted(int(one.body) for one in recorder.sent if one.port == "Errors") == [0, 2, 4, 6, 8]


def test_the_new_host_of_a_moved_port_waits_for_the_old_host(box: Box, start_host: StartHost) -> None:
    box.add_host("Slow")
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True)
    publish(box, range(5))
    box.move_port("Ordered", box.host("Slow").host_id)
    with box.connection.transaction():
        [port] = read_send_ports(box.connection, ids=[port_id(box)])
        resubscribe_port(box.connection, port)
    publish(box, range(5, 10))
    recorder = RecordingAdapter()
    new = start_host(recorder, "Slow")
    assert claim_for(box, "Slow") == [], "the old host has lower numbers"
    start_host(recorder)
    wait_until(lambda: new.counts["completed"] == 5)
    assert numbers(recorder) == list(range(10))


def test_a_claim_that_meets_an_operator_takes_nothing(box: Box) -> None:
    """The operator has locked the first messages, and one more message was published since."""
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True)
    publish(box, range(3))
    with connect(box.url) as operator:
        with operator.transaction():
            Contents(operator).lock_queued()
            publish(box, range(3, 4))
            assert claim_for(box, "Default") == []
        assert count_claimed(box) == 0
    assert len(claim_for(box, "Default")) == 4


def test_a_rerouted_ordered_port_publishes_its_messages_again(box: Box, start_host: StartHost) -> None:
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True, state="stopped")
    publish(box, range(3))
    send_ports.unenlist(box.connection, "Ordered")
    box.add_port("Other", "Orders.Region == 'EU'")
    recorder = RecordingAdapter()
    start_host(recorder)
    changes.reroute(box.connection, port_id(box))
    wait_until(lambda: box.count("instances") == 0)
    assert sorted((one.port, one.body) for one in recorder.sent) == [("Other", str(n).encode()) for n in range(3)]
    assert check(box.connection) == []


def test_an_ordered_port_waits_for_its_service_window_in_order(box: Box, start_host: StartHost) -> None:
    """ACC-52."""
    window = Schedule(window=("08:00", "18:00"), zone="UTC")
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True, service_window=window)
    now = [datetime(2026, 3, 2, 7, 0, tzinfo=UTC)]
    recorder = RecordingAdapter()
    start_host(recorder, clock=lambda: now[0])
    publish(box, range(4))
    wait_until(lambda: box.count("scheduled") == 1 and count_claimed(box) == 0)
    assert recorder.attempts == []
    assert box.count("queued") == 3, "they wait for the first one"
    now[0] = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
    publish(box, range(4, 5))
    wait_until(lambda: box.count("instances") == 0)
    assert numbers(recorder) == list(range(5))


def claim_for(box: Box, host: str) -> list[int]:
    claimed = HostQueues(host).dequeue(
        box.connection,
        claim_id=uuid.uuid4(),
        host_instance=0,
        service_class=ServiceClass.MESSAGING_IN_PROCESS,
        limit=100,
    )
    return [message.seq for message in claimed]
