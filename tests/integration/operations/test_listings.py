"""Listings for operators: ports, locations, subscriptions, messages, hosts, jobs. SUB-17, 19, INS-17."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pytest

from postroom import Schedule
from postroom.errors import DefinitionError, NotFound, StateError
from postroom.filters.text import format_filter
from postroom.message import FRAGMENT_SIZE, Bytes, Context, Message, Part
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import connect
from postroom.messagebox.coordination.running_processes import read_routing_version
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.messagebox.intake import inbox
from postroom.messagebox.intake.location_lock import LocationLock
from postroom.messagebox.intake.location_progress import LocationProgress, LocationReport, LocationState
from postroom.messagebox.storage.spool import get_message, list_messages, read_part
from postroom.operations.hosts import get_host_details, list_hosts
from postroom.operations.instances.changes import resume_with_body
from postroom.operations.jobs import check, list_jobs, run_jobs
from postroom.operations.messages import find_part, list_referring_instances, save_message
from postroom.operations.ports import receive_locations as locations
from postroom.operations.ports import send_ports as ports
from postroom.operations.subscriptions import find_subscription, list_subscriptions, read_subscription_filters
from postroom.ports.receive_locations import read_receive_locations
from postroom.system_properties import BTS
from tests.support.box import Box, Region, Total
from tests.support.changes import terminate
from tests.support.inbox_location import add_inbox_location
from tests.support.waiting import wait_until

LARGE = bytes(range(256)) * (FRAGMENT_SIZE // 100)


def order(**more: object) -> Message:
    return Message.of(b"{}", promoted={Region: "EU", Total: Decimal("1.5"), **more})  # type: ignore[dict-item]


def test_ports_are_listed_with_their_queue_counts(box: Box) -> None:
    box.add_host("Other")
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Audit", "exists(Region)", state="stopped", host="Other")
    box.add_port("Bound", "exists(Region)", state="bound")
    box.agent().publish([order(), order()])
    listed = {port.name: port for port in ports.list_ports(box.connection)}
    assert [(one.state, one.host, one.waiting, one.suspended) for one in listed.values()] == [
        (ServiceState.STOPPED, "Other", 0, 2),
        (ServiceState.BOUND, "Default", 0, 0),
        (ServiceState.STARTED, "Default", 2, 0),
    ]
    assert ports.list_ports(box.connection, application="another") == []


def test_subscriptions_have_all_fields(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU' or Total >= 10", priority=2)
    box.add_port("Audit", "exists(Region)", state="stopped")
    audit, europe = list_subscriptions(box.connection)
    assert (europe.type, europe.state, europe.priority, europe.service_name, europe.host) == (
        "activation",
        ServiceState.STARTED,
        2,
        "Europe",
        "Default",
    )
    assert (europe.ordered_delivery, europe.request_response) == (False, False)
    assert europe.filter.endswith("or Orders.Region == 'EU' or Orders.Total >= 10")
    assert europe.filter.startswith("BTS.SPTransportID == ")
    assert audit.state is ServiceState.STOPPED
    assert format_filter(read_subscription_filters(box.connection, [europe])[europe.subscription_id]) == europe.filter


def test_subscriptions_are_filtered_by_conditions(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("7", "Region == 'EU'")

    def names(**conditions: object) -> list[str]:
        return [subscription.service_name for subscription in list_subscriptions(box.connection, **conditions)]  # type: ignore[arg-type]

    assert names(service="Europe") == ["Europe"]
    assert names(subscription_type="activation", limit=1) == ["7"]
    assert names(subscription_type="instance") == names(instance_id=uuid.uuid4()) == []
    europe = find_subscription(box.connection, "Europe")
    assert find_subscription(box.connection, str(europe.subscription_id)) == europe
    assert find_subscription(box.connection, "7").service_name == "7"
    ports.unenlist(box.connection, "Europe")
    for called in ("Europe", str(europe.subscription_id), "9" * 30):
        with pytest.raises(NotFound):
            find_subscription(box.connection, called)


def test_an_ambiguous_subscription_name_is_rejected(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.set_port_states(ServiceState.BOUND)
    ports.enlist(box.connection, "Europe")
    with pytest.raises(DefinitionError, match="has 2 subscriptions"):
        find_subscription(box.connection, "Europe")


def test_a_message_is_shown_without_its_content(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    note = Part(name="note", body=Bytes(b"n"), content_type="text/plain", charset="utf-8")
    message = Message.of(LARGE, promoted={Region: "EU", BTS.MessageType: "order"}, written={Total: 3}, parts=[note])
    box.agent().publish([message])
    (listed,) = list_messages(box.connection)
    assert (listed.message_id, listed.message_type, listed.parts, listed.size) == (
        message.message_id,
        "order",
        2,
        len(LARGE) + 1,
    )
    assert listed.published_by == "postgres"
    assert list_messages(box.connection, message_type="invoice") == list_messages(box.connection, limit=0) == []
    stored = get_message(box.connection, message.message_id)
    from_me = message.context.write(BTS.OriginatorSID, "postgres").write(BTS.OriginatorPID, "Guest")
    assert dict(stored.context.promoted) == dict(message.context.promoted)
    assert dict(stored.context.written) == dict(from_me.written)
    body, other = stored.parts
    assert (body.name, body.size, body.is_body) == ("body", len(LARGE), True)
    assert (other.name, other.content_type, other.charset, other.is_body) == ("note", "text/plain", "utf-8", False)
    (referring,) = list_referring_instances(box.connection, message.message_id)
    assert referring.service == "Europe"


def test_a_message_is_saved_with_context_and_all_parts(box: Box, tmp_path: Path) -> None:
    box.add_port("Europe", "Region == 'EU'")
    parts = [Part(name="../../etc/passwd", body=Bytes(b"p")), Part(name="..", body=Bytes(b"d"))]
    message = Message.of(LARGE, promoted={Region: "EU", Total: Decimal("1.50")}, parts=parts)
    box.agent().publish([message])
    saved = save_message(box.connection, message.message_id, tmp_path / "there")
    folder = tmp_path / "there" / str(message.message_id)
    assert {path.parent for path in saved} == {folder}
    assert {path.name for path in folder.iterdir()} == {"context.json", "01-body", "02-_.._etc_passwd", "03-part"}
    assert (folder / "01-body").read_bytes() == LARGE
    assert (folder / "02-_.._etc_passwd").read_bytes() == b"p"
    context = json.loads((folder / "context.json").read_text())
    assert context["promoted"][Total.key] == {"decimal": "1.50"}
    with pytest.raises(StateError, match="already exists"):
        save_message(box.connection, message.message_id, tmp_path / "there")
    with pytest.raises(NotFound):
        save_message(box.connection, uuid.uuid4(), tmp_path)


def test_a_large_part_is_read_in_chunks(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    message = Message.of(LARGE, promoted={Region: "EU"})
    box.agent().publish([message])
    stored = get_message(box.connection, message.message_id)
    pieces = list(read_part(box.connection, find_part(stored, None)))
    assert b"".join(pieces) == LARGE
    assert max(map(len, pieces)) == FRAGMENT_SIZE
    with pytest.raises(NotFound, match=r"no part 'other'\.\nIts parts are: body\."):
        find_part(stored, "other")
    with pytest.raises(NotFound, match=r"has no body\.\nIt has no parts, only properties\."):
        find_part(replace(stored, parts=()), None)


def test_locations_are_enabled_and_disabled(box: Box) -> None:
    box.add_location()
    version = read_routing_version(box.connection)
    locations.disable(box.connection, "drop")
    (listed,) = locations.list_locations(box.connection)
    assert (listed.location, listed.port, listed.host, listed.enabled) == (
        "drop",
        "OrdersIn",
        "Default",
        False,
    )
    assert read_routing_version(box.connection) > version, "the pipelines must detect the change"
    with pytest.raises(StateError):
        locations.disable(box.connection, "drop")
    locations.enable(box.connection, "drop")
    assert locations.list_locations(box.connection)[0].enabled
    with pytest.raises(NotFound, match="drop"):
        locations.enable(box.connection, "nowhere")


def test_a_schedule_is_set_and_removed(box: Box) -> None:
    box.add_location()
    night = Schedule(window=("22:00", "06:00"))
    locations.set_schedule(box.connection, "drop", night)
    (listed,) = locations.list_locations(box.connection)
    (location,) = read_receive_locations(box.connection)
    assert (listed.schedule, location.schedule) == (str(night), night)
    noon, midnight = datetime(2026, 1, 1, 12, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    assert (location.receives_at(noon), location.receives_at(midnight)) == (False, True)
    opens = [locations.list_locations(box.connection, clock=one)[0].opens for one in (lambda: noon, lambda: midnight)]
    assert opens == [datetime(2026, 1, 1, 22, tzinfo=UTC), None]
    with pytest.raises(DefinitionError, match="The schedule is invalid"):
        locations.set_schedule(box.connection, "drop", Schedule(zone="Mars"))
    locations.set_schedule(box.connection, "drop", None)
    (location,) = read_receive_locations(box.connection)
    assert location.schedule is None
    assert location.receives_at(noon)
    locations.disable(box.connection, "drop")
    assert not read_receive_locations(box.connection)[0].receives_at(noon)
    with pytest.raises(NotFound):
        locations.set_schedule(box.connection, "nowhere", None)


def test_a_location_lists_its_problems(box: Box) -> None:
    location = box.add_location()
    for state, problem in ((2, None), (2, None), (3, None), (4, "It is gone.")):
        box.add_file_claim(location.location_id, state=state, problem=problem)
    box.receive(location, b"{")
    (listed,) = locations.list_locations(box.connection)
    assert (listed.waiting, listed.suspended, listed.problems) == (2, 1, ["a.json: It is gone."])
    assert listed.oldest is not None


def test_a_location_reports_its_progress(box: Box) -> None:
    location = add_inbox_location(box)
    for number in range(3):
        inbox.store_in_inbox(box.connection, location.location_id, uuid.UUID(int=number), Context(), [b"{}"])
    inbox.quarantine(box.connection, uuid.UUID(int=1), "It is odd.")

    def list_drop() -> tuple[str, str | None, int | None, float | None]:
        (one,) = locations.list_locations(box.connection)
        assert (one.waiting, one.problems) == (3, ["It is odd."])
        assert one.oldest is not None
        return one.state, one.reason, one.published, one.rate

    assert list_drop() == ("not running", None, None, None)
    with connect(box.url, user=box.host().role_name) as connection:
        lock = LocationLock(connection, location.location_id)
        assert lock.acquire()
        assert list_drop() == ("starting", None, 0, 0.0)
        progress = LocationProgress(
            location_id=location.location_id, state=LocationState.THROTTLED, reason="Too much.", rows=7, rate=1.5
        )
        LocationReport().store(connection, progress)
        assert list_drop() == ("throttled", "Too much.", 7, 1.5)
    # A killed process leaves its row but no lock.
    wait_until(lambda: list_drop() == ("not running", None, None, None), what="the end of the session")
    locations.disable(box.connection, location.name)
    assert list_drop()[0] == "disabled"


def test_hosts_are_listed_with_their_instances(box: Box) -> None:
    box.add_host("Another")
    box.add_port("Europe", "Region == 'EU'")
    box.add_location()
    box.add_host_instance("here")
    box.add_host_instance("there", pid=2, is_dead=True)
    another, default = list_hosts(box.connection)
    assert (default.name, default.is_default, default.running_instances, default.locations, default.send_ports) == (
        "Default",
        True,
        1,
        1,
        1,
    )
    assert (another.name, another.running_instances) == ("Another", 0)
    assert [
        (instance.server, instance.dead_since is None)
        for instance in get_host_details(box.connection, "default").instances
    ] == [
        ("here", True),
        ("there", False),
    ]
    with pytest.raises(NotFound):
        get_host_details(box.connection, "nowhere")


def test_jobs_are_run_and_listed(box: Box) -> None:
    assert {job.runs for job in list_jobs(box.connection)} == {0}
    for port in ("Europe", "Audit"):
        box.add_port(port, "Region == 'EU'")
    box.agent().publish([order()])
    for instance in list_instances(box.connection, InstanceQuery()):
        terminate(box.connection, instance.instance_id)
    runs = {run.name: run for run in run_jobs(box.connection)}
    assert runs["message_cleanup"].rows == 1
    assert box.count("messages") == box.count("parts") == 0
    listed = {job.name: job for job in list_jobs(box.connection)}
    assert set(listed) == set(runs)
    cleanup = listed["message_cleanup"]
    assert (cleanup.runs, cleanup.rows_last, cleanup.error) == (1, 1, None)
    assert cleanup.finished_at is not None


@pytest.mark.parametrize("folded", [False, True], ids=["in the logs", "folded"])
def test_no_operation_violates_an_invariant(box: Box, folded: bool) -> None:
    box.add_port("Europe", "Region == 'EU'", state="stopped")
    box.add_port("Audit", "exists(Region)", state="stopped")
    box.agent().publish([order(), Message.of(LARGE, promoted={Region: "EU"})])
    for instance in list_instances(box.connection, InstanceQuery(port="Europe")):
        resume_with_body(box.connection, instance.instance_id, b"corrected")
    terminate(box.connection, list_instances(box.connection, InstanceQuery(port="Audit"))[0].instance_id)
    if folded:
        run_jobs(box.connection)
    assert check(box.connection) == []
    # The check itself works: it finds an unreleased reference.
    box.delete_queued(box.queued_rows()[0].instance_id)
    assert check(box.connection) != []
