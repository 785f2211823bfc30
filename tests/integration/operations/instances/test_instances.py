"""Instances: list, resume, correct, suspend, terminate. INS-01, 05, 08, 09, 11, NRF-04, 05, 08, RCV-15."""

from __future__ import annotations

import uuid
from datetime import timedelta
from decimal import Decimal

import pytest

from postroom import pipelines
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import NotFound, PublishFailed, StateError
from postroom.message import FRAGMENT_SIZE, Bytes, Context, Message, Part
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import connect
from postroom.messagebox.coordination.notifications import wake_up_channel
from postroom.messagebox.instances import (
    InstanceQuery,
    InstanceState,
    count_instances,
    count_queues,
    get_instance,
    list_instances,
)
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import HostQueues, Postponement, ScheduledRetry, Suspension
from postroom.messagebox.storage.spool import get_message, read_part
from postroom.operations.instances.changes import ChangedInstances, change_instances, resume_with_body
from postroom.operations.messages import find_part
from postroom.operations.ports import send_ports
from tests.support.box import PROMOTE, Box, Region, Total, interchange
from tests.support.changes import resume, resume_all, suspend, suspend_all, terminate, terminate_all
from tests.support.waiting import PATIENCE

EVERYTHING = InstanceQuery()


def order(region: str = "EU") -> Message:
    return Message.of(b"{}", promoted={Region: region, Total: Decimal(1)})


def find_instance(box: Box, **conditions: object) -> uuid.UUID:
    (found,) = list_instances(box.connection, InstanceQuery(**conditions))  # type: ignore[arg-type]
    return found.instance_id


def claim(box: Box) -> tuple[uuid.UUID, int]:
    """Let a host instance claim the next message."""
    claim_id = uuid.uuid4()
    (claimed,) = HostQueues("Default").dequeue(
        box.connection, claim_id=claim_id, host_instance=1, service_class=ServiceClass.MESSAGING_IN_PROCESS, limit=1
    )
    return claim_id, claimed.seq


def count_references(box: Box, kind: str = "message") -> dict[uuid.UUID, int]:
    """Return the number of references by message id or part id."""
    return dict(box.connection.execute(f"SELECT {kind}_id, total FROM {kind}_ref_counts").fetchall())


def suspend_by_failure(box: Box, message: Message) -> uuid.UUID:
    """Create a suspended instance of a message that its port could not send."""
    box.add_port("Europe", "Region == 'EU'")
    box.agent().publish([message])
    claim_id, seq = claim(box)
    reason = Suspension(code="DELIVERY", description="Disk full.\nMake room.", adapter="file", uri="file:///out")
    HostQueues("Default").suspend(box.connection, claim_id, {seq: reason})
    return find_instance(box)


def test_instances_are_changed_by_their_ids_all_or_none(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'", state="stopped")
    box.agent().publish([order(), order(), order()])
    first, second, third = (instance.instance_id for instance in list_instances(box.connection, EVERYTHING))
    resumed = change_instances(box.connection, "resume", [first, second, first])
    assert resumed == ChangedInstances(changed=2, hosts={"Default": 2})
    with pytest.raises(StateError, match="cannot be resumed: it is ready to run"):
        change_instances(box.connection, "resume", [third, first])
    assert get_instance(box.connection, third).state is InstanceState.SUSPENDED
    claim(box)
    assert change_instances(box.connection, "suspend", [first, second]) == ChangedInstances(changed=1, pending=1)
    assert change_instances(box.connection, "terminate", [third]) == ChangedInstances(changed=1, messages=1)


def test_each_state_has_its_reason(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Asia", "Region == 'ASIA'", state="stopped")
    agent = box.agent()
    agent.publish([order()])
    claim_id, seq = claim(box)
    later = ScheduledRetry(delay=timedelta(days=1), code="DELIVERY", description="Not now.")
    HostQueues("Default").retry(box.connection, claim_id, {seq: later})
    agent.publish([order()])
    claim_id, seq = claim(box)
    HostQueues("Default").postpone(box.connection, claim_id, {seq: Postponement(delay=timedelta(hours=1))})
    agent.publish([order()])
    claim(box)
    agent.publish([order(), order("ASIA")])
    with pytest.raises(PublishFailed):
        agent.publish([order("nowhere")])
    found = {instance.state: instance for instance in list_instances(box.connection, EVERYTHING)}
    assert set(found) == set(InstanceState) - {InstanceState.DEHYDRATED}  # the state of orchestrations
    retrying = found[InstanceState.RETRYING]
    assert (retrying.service, retrying.attempt, retrying.error_code) == ("Europe", 2, "DELIVERY")
    assert retrying.retry_at is not None
    stopped = found[InstanceState.SUSPENDED]
    assert (stopped.service, stopped.error_code, stopped.reason) == (
        "Asia",
        "PORT_STOPPED",
        "The subscriber Asia is enlisted but stopped.",
    )
    report = found[InstanceState.SUSPENDED_NOT_RESUMABLE]
    assert report.service_class is ServiceClass.ROUTING_FAILURE_REPORT
    assert (report.service, report.service_id) == (None, None)


def test_a_failure_stores_error_adapter_and_uri(box: Box) -> None:
    instance = get_instance(box.connection, suspend_by_failure(box, order()))
    assert (instance.error_code, instance.reason) == ("DELIVERY", "Disk full.")
    assert (instance.adapter, instance.uri, instance.host) == ("file", "file:///out", "Default")
    assert instance.suspended_at is not None
    by = {
        key: [(count.value, count.count) for count in count_instances(box.connection, EVERYTHING, key)]
        for key in ("host", "port", "error", "reason", "adapter", "uri")
    }
    assert by == {
        "host": [("Default", 1)],
        "port": [("Europe", 1)],
        "error": [("DELIVERY", 1)],
        "reason": [("Disk full.", 1)],
        "adapter": [("file", 1)],
        "uri": [("file:///out", 1)],
    }


def test_bad_rows_with_the_same_error_are_counted_as_one_group(box: Box) -> None:
    location = box.add_location(pipelines.JsonLines(promote=PROMOTE, recoverable=True))
    with connect(box.url, user=box.host().role_name) as connection:
        Receiver(connection, RoutingTable()).receive(location, [interchange(b"[\n" * 12)])
    reasons = {instance.reason for instance in list_instances(box.connection, EVERYTHING)}
    assert len(reasons) == 12, "each reason contains the position"
    [group] = count_instances(box.connection, EVERYTHING, "reason")
    assert group.count == 12


def test_bad_rows_are_grouped_by_their_column(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.agent().publish([order() for _ in range(3)])
    suspend_all(box.connection, EVERYTHING)
    for row in box.suspended_rows():
        column = "tax" if row.seq % 3 == 0 else "total"
        box.set_error(row.seq, f"Row {row.seq} is bad.\nThe column '{column}' is decimal(12,2), but has '{row.seq}'.")
    counts = {str(group.value): group.count for group in count_instances(box.connection, EVERYTHING, "reason")}
    assert sorted(counts) == [
        "Row n is bad. The column 'tax' is decimal(12,2).",
        "Row n is bad. The column 'total' is decimal(12,2).",
    ]
    assert sorted(counts.values()) == [1, 2]


def test_instances_are_filtered_by_conditions(box: Box) -> None:
    box.add_host("Other")
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Asia", "Region == 'ASIA'", state="stopped", host="Other")
    location = box.add_location(pipelines.JsonLines(promote=PROMOTE))
    [published] = box.agent().publish([order()])
    box.agent().publish([order("ASIA")])
    box.receive(location, b"{")

    def names(query: InstanceQuery) -> list[str | None]:
        return [instance.service for instance in list_instances(box.connection, query)]

    assert names(EVERYTHING) == ["drop", "Asia", "Europe"]
    assert names(InstanceQuery(limit=1)) == ["drop"]
    assert names(InstanceQuery(states=[InstanceState.SUSPENDED])) == ["drop", "Asia"]
    assert names(InstanceQuery(host="OTHER")) == ["Asia"]
    assert names(InstanceQuery(port="Europe")) == names(InstanceQuery(message_id=published.message_id)) == ["Europe"]
    assert names(InstanceQuery(port="drop")) == names(InstanceQuery(port="OrdersIn")) == ["drop"]
    assert names(InstanceQuery(error_code="PIPELINE")) == ["drop"]
    assert names(InstanceQuery(host="nowhere")) == []


def test_a_resumed_instance_keeps_its_number_and_wakes_its_host(box: Box) -> None:
    instance_id = suspend_by_failure(box, order())
    before = get_instance(box.connection, instance_id)
    with connect(box.url) as listening:
        listening.execute(f"LISTEN {wake_up_channel('Default')}")
        resume(box.connection, instance_id)
        [notice] = listening.notifies(timeout=PATIENCE, stop_after=1)
        assert notice.channel == wake_up_channel("Default")
    after = get_instance(box.connection, instance_id)
    assert (after.state, after.seq, after.attempt, after.error_code) == (
        InstanceState.READY_TO_RUN,
        before.seq,
        1,
        None,
    )


def test_a_message_of_a_stopped_port_can_be_resumed(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'", state="stopped")
    box.agent().publish([order()])
    resume(box.connection, find_instance(box))
    assert box.queued() == {"Europe": 1}


def test_a_rejected_resume_names_the_next_step(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    location = box.add_location(pipelines.JsonLines(promote=PROMOTE))
    box.receive(location, b'{"region": "nowhere", "total": 1}')
    report = find_instance(box, states=[InstanceState.SUSPENDED_NOT_RESUMABLE])
    kept = find_instance(box, states=[InstanceState.SUSPENDED])
    with pytest.raises(StateError, match="routing failure report") as refused:
        resume(box.connection, report)
    assert str(kept) in refused.value.hint
    with pytest.raises(StateError, match="routing failure report"):
        resume_with_body(box.connection, report, b"{}")
    box.agent().publish([order()])
    ready = find_instance(box, port="Europe")
    with pytest.raises(StateError, match="ready to run"):
        resume(box.connection, ready)
    with pytest.raises(NotFound):
        resume(box.connection, uuid.uuid4())


def test_an_active_instance_is_not_changed_at_once(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.agent().publish([order()])
    claim(box)
    active = find_instance(box)
    with pytest.raises(StateError, match="active"):
        resume(box.connection, active)
    assert terminate_all(box.connection, EVERYTHING) == suspend_all(box.connection, EVERYTHING) == 0
    for operation in (suspend, terminate):
        with pytest.raises(StateError, match=r"another operation is pending for it \(terminate\)"):
            operation(box.connection, active)
    assert get_instance(box.connection, active).state is InstanceState.ACTIVE


def test_an_operator_suspends_and_resumes_an_instance(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.agent().publish([order()])
    instance_id = find_instance(box)
    suspend(box.connection, instance_id)
    suspended = get_instance(box.connection, instance_id)
    assert (suspended.state, suspended.error_code) == (InstanceState.SUSPENDED, "OPERATOR")
    with pytest.raises(StateError):
        suspend(box.connection, instance_id)
    resume(box.connection, instance_id)
    assert box.queued() == {"Europe": 1}


def test_terminate_releases_the_message_for_one_subscriber_only(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Audit", "exists(Region)")
    [published] = box.agent().publish([order()])
    assert count_references(box) == {published.message_id: 2}
    terminate(box.connection, find_instance(box, port="Europe"))
    assert count_references(box) == {published.message_id: 1}
    assert box.queued() == {"Audit": 1}
    with pytest.raises(NotFound):
        terminate(box.connection, uuid.uuid4())


def test_bulk_operations_change_only_matching_instances(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'", state="stopped")
    box.add_port("Asia", "Region == 'ASIA'", state="stopped")
    box.agent().publish([order() for _ in range(2_300)] + [order("ASIA") for _ in range(3)])
    assert resume_all(box.connection, InstanceQuery(port="Europe")) == 2_300
    assert box.queued() == {"Europe": 2_300}
    assert suspend_all(box.connection, InstanceQuery(port="Europe", limit=1_100)) == 1_100
    assert resume_all(box.connection, InstanceQuery(error_code="OPERATOR")) == 1_100
    assert resume_all(box.connection, InstanceQuery(states=[InstanceState.ACTIVE])) == 0
    assert terminate_all(box.connection, InstanceQuery(states=[InstanceState.SUSPENDED])) == 3
    assert terminate_all(box.connection, EVERYTHING) == 2_300
    assert (count_references(box), box.count("messages")) == ({}, 0)
    assert list_instances(box.connection, EVERYTHING) == []


def test_resume_all_skips_instances_that_cannot_be_resumed(box: Box) -> None:
    location = box.add_location(pipelines.JsonLines(promote=PROMOTE))
    box.receive(location, b'{"region": "nowhere", "total": 1}')
    assert resume_all(box.connection, EVERYTHING) == 1
    states = sorted(instance.state for instance in list_instances(box.connection, EVERYTHING))
    assert states == [InstanceState.READY_TO_RUN, InstanceState.SUSPENDED_NOT_RESUMABLE]


def read_body(box: Box, message_id: uuid.UUID) -> bytes:
    message = get_message(box.connection, message_id)
    return b"".join(read_part(box.connection, find_part(message, None)))


@pytest.mark.parametrize("size", [10, FRAGMENT_SIZE * 3 + 7], ids=["small", "large"])
def test_an_instance_with_a_new_body_gets_its_own_message(box: Box, size: int) -> None:
    """RCV-15: the other subscriber keeps the published message."""
    box.add_port("Audit", "exists(Region)", state="stopped")
    note = Part(name="note", body=Bytes(b"n"), content_type="text/plain")
    published = Message.of(b"bad", promoted={Region: "EU"}, parts=[note], content_type="application/json")
    box.add_port("Europe", "Region == 'EU'", state="stopped")
    box.agent().publish([published])
    instance_id = find_instance(box, port="Europe")
    good = b"x" * size
    resume_with_body(box.connection, instance_id, good)

    corrected = get_instance(box.connection, instance_id)
    assert corrected.state is InstanceState.READY_TO_RUN
    assert corrected.message_id != published.message_id
    message = get_message(box.connection, corrected.message_id)
    assert dict(message.context.promoted) == dict(published.context.promoted)
    assert message.context.written["Postroom#OriginalMessageID"] == str(published.message_id)
    assert [(part.name, part.content_type, part.is_body) for part in message.parts] == [
        ("body", "application/json", True),
        ("note", "text/plain", False),
    ]
    assert read_body(box, corrected.message_id) == good
    assert read_body(box, published.message_id) == b"bad"
    assert count_references(box) == {published.message_id: 1, corrected.message_id: 1}
    (old_body, shared) = published.parts
    assert count_references(box, "part") == {old_body.part_id: 1, shared.part_id: 2, message.parts[0].part_id: 1}


def test_the_old_message_is_deleted_if_no_other_instance_refers_to_it(box: Box) -> None:
    published = order()
    instance_id = suspend_by_failure(box, published)
    resume_with_body(box.connection, instance_id, b"good")
    corrected = get_instance(box.connection, instance_id)
    assert count_references(box) == {published.message_id: 0, corrected.message_id: 1}


def test_a_message_without_a_body_can_get_one(box: Box) -> None:
    instance_id = suspend_by_failure(box, Message(context=Context().promote(Region, "EU")))
    resume_with_body(box.connection, instance_id, b"now there is one")
    assert read_body(box, get_instance(box.connection, instance_id).message_id) == b"now there is one"


def test_the_body_of_an_instance_that_cannot_be_resumed_is_not_replaced(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    [published] = box.agent().publish([order()])
    before = count_references(box), count_references(box, "part"), box.count("parts"), box.count("messages")
    with pytest.raises(StateError, match="ready to run"):
        resume_with_body(box.connection, find_instance(box), b"other")
    assert (count_references(box), count_references(box, "part"), box.count("parts"), box.count("messages")) == before
    assert get_instance(box.connection, find_instance(box)).message_id == published.message_id


def test_queues_are_counted_per_host_with_the_age_of_the_oldest(box: Box) -> None:
    box.add_host("Other")
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Asia", "Region == 'ASIA'", host="Other", state="stopped")
    box.agent().publish([order(), order(), order("ASIA")])
    box.age_first_queued(timedelta(hours=1))
    counted = {(count.host, count.state): count for count in count_queues(box.connection)}
    assert len(counted) == 2 * len(InstanceState)
    assert {key: count.count for key, count in counted.items() if count.count} == {
        ("Default", InstanceState.READY_TO_RUN): 2,
        ("Other", InstanceState.SUSPENDED): 1,
    }
    age = counted["Default", InstanceState.READY_TO_RUN].age_seconds
    assert age is not None
    assert 3600 <= age < 3700
    assert counted["Other", InstanceState.ACTIVE].age_seconds is None


def test_starting_a_port_wakes_its_host(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'", state="stopped")
    box.agent().publish([order()])
    with connect(box.url) as listening:
        listening.execute(f"LISTEN {wake_up_channel('Default')}")
        assert send_ports.start(box.connection, "Europe").resumed == 1
        [notice] = listening.notifies(timeout=PATIENCE, stop_after=1)
        assert notice.channel == wake_up_channel("Default")


@pytest.mark.parametrize("recoverable", [True, False])
def test_the_report_of_a_terminated_instance_is_deleted_by_the_job(box: Box, recoverable: bool) -> None:
    """NRF-08."""
    location = box.add_location(pipelines.JsonLines(promote=PROMOTE, recoverable=recoverable))
    box.receive(location, b'{"region": "nowhere"}', b'{"region": "elsewhere"}')
    first, second = (
        instance.instance_id
        for instance in list_instances(box.connection, InstanceQuery(states=[InstanceState.SUSPENDED]))
    )
    terminate(box.connection, first)
    assert len(box.suspended()) == 3, "the report still exists"
    run_all_jobs_once(box.connection)
    assert len(box.suspended()) == 2
    assert box.report().related_instance_id == second
