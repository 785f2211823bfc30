"""The first message of an ordered send port is terminated or moved aside, and the messages after it are not lost."""

from __future__ import annotations

import uuid

import pytest

from postroom.errors import DeliveryFailure, StateError
from postroom.messagebox.audit import list_audit
from postroom.messagebox.instance_operations import list_operations
from postroom.messagebox.instances import Instance, InstanceQuery, InstanceState, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.operations.instances.advice import get_advice
from postroom.operations.instances.changes import skip
from postroom.operations.ports import send_ports
from tests.integration.hosts.conftest import StartHost
from tests.integration.hosts.dequeue.test_takeover import count_claimed
from tests.integration.hosts.messaging.test_ordered_ports import fail_number, numbers, port_id, publish
from tests.support import changes
from tests.support.box import Box
from tests.support.recording_adapter import BlockedSend, RecordingAdapter
from tests.support.waiting import wait_until


def add_ordered_port(box: Box) -> None:
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True, stop_on_failure=True, retry_count=0)


def stop_at_a_failure(box: Box, start_host: StartHost) -> RecordingAdapter:
    """Let the message 2 of six fail, which holds back the others."""
    add_ordered_port(box)
    publish(box, range(6))
    recorder = RecordingAdapter(fail_number(2))
    start_host(recorder)
    wait_until(lambda: box.suspended() == [("DELIVERY_REFUSED", True)])
    return recorder


def find_port(box: Box) -> Instance:
    [found] = list_instances(box.connection, InstanceQuery(ids=[port_id(box)]))
    return found


def test_terminating_an_ordered_port_deletes_only_the_message_that_failed(box: Box, start_host: StartHost) -> None:
    recorder = stop_at_a_failure(box, start_host)
    failed = find_port(box)
    assert changes.terminate(box.connection, failed.instance_id)
    wait_until(lambda: box.count("instances") == 0, what="the messages after it to be sent")
    assert numbers(recorder) == [0, 1, 3, 4, 5]
    [recorded] = list_audit(box.connection, action="instance.terminate")
    assert (recorded.target, recorded.after) == (
        str(failed.instance_id),
        {"state": "terminated", "message": str(failed.message_id)},
    )
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []


def test_terminating_by_conditions_deletes_only_the_message_that_failed(box: Box, start_host: StartHost) -> None:
    recorder = stop_at_a_failure(box, start_host)
    failed = find_port(box)
    assert changes.terminate_all(box.connection, InstanceQuery(port="Ordered", error_code="DELIVERY_REFUSED")) == 1
    wait_until(lambda: box.count("instances") == 0, what="the messages after it to be sent")
    assert numbers(recorder) == [0, 1, 3, 4, 5]
    piece, _requested = list_audit(box.connection, action="instance.terminate")
    assert piece.after is not None
    assert (piece.after["ids"], piece.after["messages"]) == ([str(failed.instance_id)], [str(failed.message_id)])


def test_all_messages_are_terminated_on_request(box: Box) -> None:
    add_ordered_port(box)
    publish(box, range(3))
    assert changes.terminate(box.connection, port_id(box), all_messages=True)
    publish(box, range(3))
    assert changes.terminate_all(box.connection, InstanceQuery(port="Ordered"), all_messages=True) == 1
    assert box.count("instances") == 0


def test_a_skipped_message_is_kept_while_the_others_are_sent(box: Box, start_host: StartHost) -> None:
    recorder = stop_at_a_failure(box, start_host)
    failed = find_port(box)
    assert "postroom instance skip" in (get_advice(failed) or "")
    skipped = skip(box.connection, failed.instance_id)
    wait_until(lambda: box.count("instances") == 1, what="the messages after it to be sent")
    assert numbers(recorder) == [0, 1, 3, 4, 5]
    [kept] = list_instances(box.connection, InstanceQuery())
    assert (kept.instance_id, kept.message_id, kept.messages) == (skipped, failed.message_id, 1)
    assert (kept.state, kept.error_code, kept.service) == (InstanceState.SUSPENDED, "DELIVERY_REFUSED", "Ordered")
    assert kept.error_description == failed.error_description
    [recorded] = list_audit(box.connection, action="instance.skip")
    assert recorded.after == {
        "state": "suspended",
        "message": str(failed.message_id),
        "instance": str(skipped),
    }
    assert check(box.connection) == []


def test_a_skipped_message_is_resumed_out_of_order_and_holds_nothing_back(box: Box, start_host: StartHost) -> None:
    recorder = stop_at_a_failure(box, start_host)
    skipped = skip(box.connection, port_id(box))
    wait_until(lambda: len(recorder.sent) == 5)
    changes.resume(box.connection, skipped)
    wait_until(lambda: box.suspended() == [("DELIVERY_REFUSED", True)], what="it to fail again")
    publish(box, range(6, 8))
    wait_until(lambda: len(recorder.sent) == 7, what="new messages to be sent meanwhile")
    recorder.behave = lambda message, attempt: None
    changes.resume(box.connection, skipped)
    wait_until(lambda: box.count("instances") == 0)
    assert numbers(recorder) == [0, 1, 3, 4, 5, 6, 7, 2]
    ids = {one.attempt.instance_id for one in recorder.attempts if one.body == b"2"}
    assert ids == {skipped}, "a receiver recognises a repeat"


def test_a_skipped_message_is_terminated_alone(box: Box) -> None:
    add_ordered_port(box)
    publish(box, range(3))
    skipped = skip(box.connection, port_id(box))
    assert changes.terminate(box.connection, skipped)
    assert find_port(box).messages == 2


def test_the_start_of_the_port_does_not_resume_a_skipped_message(box: Box) -> None:
    add_ordered_port(box)
    send_ports.stop(box.connection, "Ordered")
    publish(box, range(3))
    skipped = skip(box.connection, port_id(box))
    assert send_ports.start(box.connection, "Ordered").resumed == 2
    [kept] = list_instances(box.connection, InstanceQuery(states=[InstanceState.SUSPENDED]))
    assert kept.instance_id == skipped


def test_a_message_that_waits_for_a_retry_is_skipped(box: Box, start_host: StartHost) -> None:
    box.add_port("Ordered", "Orders.Region == 'EU'", ordered=True, stop_on_failure=True, retry_seconds=3_600)
    publish(box, range(3))
    recorder = RecordingAdapter(fail_number(0, DeliveryFailure("Not reached.")))
    start_host(recorder)
    wait_until(lambda: box.count("scheduled") == 1)
    wait_until(lambda: count_claimed(box) == 0, what="the rest of the claim to be released")
    skipped = skip(box.connection, port_id(box))
    wait_until(lambda: box.count("instances") == 1, what="the messages after it to be sent")
    assert numbers(recorder) == [1, 2]
    [kept] = list_instances(box.connection, InstanceQuery())
    assert (kept.instance_id, kept.error_code) == (skipped, "DELIVERY")


def test_a_message_that_is_being_sent_is_neither_skipped_nor_terminated_if_it_arrives(
    box: Box, start_host: StartHost
) -> None:
    """The pending termination is one of the message. It does not hit the message after it."""
    add_ordered_port(box)
    publish(box, range(3))
    blocked = BlockedSend()
    recorder = RecordingAdapter(blocked)
    start_host(recorder)
    wait_until(lambda: count_claimed(box) == 3, what="the messages to be claimed")
    with pytest.raises(StateError, match="it is active"):
        skip(box.connection, port_id(box))
    assert not changes.terminate(box.connection, port_id(box)), "it is pending"
    blocked.released.set()
    wait_until(lambda: box.count("instances") == 0)
    assert numbers(recorder) == [0, 1, 2]
    run_all_jobs_once(box.connection)
    [operation] = list_operations(box.connection)
    assert (operation.changed, operation.remaining, operation.finished_at is None) == (0, 0, False)


def test_the_first_message_is_not_skipped_twice(box: Box) -> None:
    add_ordered_port(box)
    publish(box, range(3))
    first = find_port(box)
    call = "SELECT skip_message(%s, %s, %s)"
    skipped = uuid.uuid4()
    assert box.one(call, first.instance_id, first.seq, skipped) is True
    with pytest.raises(StateError, match="there is an instance"):
        box.one(call, first.instance_id, first.seq, skipped)
    assert box.one(call, first.instance_id, first.seq, uuid.uuid4()) is False
    assert find_port(box).messages == 2


def test_only_ordered_ports_have_messages_to_skip(box: Box) -> None:
    box.add_port("Plain", "Orders.Region == 'EU'")
    publish(box, range(1))
    instance: uuid.UUID = box.instances()[0].instance_id
    with pytest.raises(StateError, match="not an ordered send port"):
        skip(box.connection, instance)
