"""Send port groups: deliveries by state, and rejected state changes (SUB-15, 16; SPT-11 … 13)."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress

import pytest

from postroom.errors import NotFound, PublishFailed, StateError
from postroom.message import Message
from postroom.messagebox.configuration.send_port_groups import read_send_port_groups
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.instances import InstanceState
from postroom.messagebox.queues import Cause
from postroom.operations.ports import groups
from postroom.operations.ports import send_ports as ports
from postroom.operations.subscriptions import list_subscriptions
from postroom.ports.send_ports import read_send_ports
from postroom.system_properties import BTS
from tests.support.box import Box, Region

WORK, SUSPENDED, NOBODY = "work queue", "suspended", "nobody"

#: SPT-13: the disposition of a message to the port and of a message through the group, by the states of group and port.
MATRIX = {
    ("bound", "bound"): (NOBODY, NOBODY),
    ("bound", "stopped"): (SUSPENDED, NOBODY),
    ("bound", "started"): (WORK, NOBODY),
    ("stopped", "bound"): (NOBODY, NOBODY),
    ("stopped", "stopped"): (SUSPENDED, SUSPENDED),
    ("stopped", "started"): (WORK, SUSPENDED),
    ("started", "bound"): (NOBODY, NOBODY),
    ("started", "stopped"): (SUSPENDED, SUSPENDED),
    ("started", "started"): (WORK, WORK),
}

Publish = Callable[[Box, str], None]


def publish_by_index(box: Box, region: str) -> None:
    with suppress(PublishFailed):
        box.agent().publish([Message.of(b"", promoted={Region: region})])


def publish_by_sql(box: Box, region: str) -> None:
    with suppress(PublishFailed):
        box.agent(warm=False).publish([Message.of(b"", promoted={Region: region})])


def publish_by_stream(box: Box, region: str) -> None:
    box.receive(box.add_location(port=region, name=region), json.dumps({"region": region}).encode())


def read_queues(box: Box, name: str = "P") -> list[str]:
    """Return the queues that the messages for a port are in."""
    found = [one for one in box.instances() if one.port == name]
    assert {one.state for one in found} <= {InstanceState.READY_TO_RUN, InstanceState.SUSPENDED}
    assert {one.cause for one in found} <= {None, Cause.PORT_STOPPED}
    return sorted(WORK if one.state == InstanceState.READY_TO_RUN else SUSPENDED for one in found)


def create_group(box: Box, *, group: str = "started", port: str = "started") -> None:
    """Create a port and a group with different filters. A second member allows every state of the group."""
    box.add_port("P", "Region == 'direct' or Region == 'both'", state=port)
    box.add_port("Other", state="stopped")
    box.add_group("G", ["P", "Other"], "Region == 'group' or Region == 'both'", state=group)


def read_states(box: Box) -> dict[str, str]:
    found = [(port.name, port.state) for port in read_send_ports(box.connection)]
    found += [(group.name, group.state) for group in read_send_port_groups(box.connection)]
    return {name: state.name.lower() for name, state in found}


@pytest.mark.parametrize(
    "publish", [publish_by_index, publish_by_sql, publish_by_stream], ids=["index", "sql", "stream"]
)
@pytest.mark.parametrize(("group", "port"), MATRIX, ids=[f"group_{g}-port_{p}" for g, p in MATRIX])
def test_delivery_depends_on_the_states_of_port_and_group(box: Box, group: str, port: str, publish: Publish) -> None:
    create_group(box, group=group, port=port)
    direct, through_the_group = MATRIX[group, port]
    publish(box, "direct")
    assert read_queues(box) == [where for where in (direct,) if where != NOBODY]
    publish(box, "group")
    assert read_queues(box) == sorted(where for where in MATRIX[group, port] if where != NOBODY)
    publish(box, "both")
    assert read_queues(box) == sorted(2 * [where for where in (direct, through_the_group) if where != NOBODY])
    assert read_states(box) == {"P": port, "Other": "stopped", "G": group}


@pytest.mark.parametrize("warm", [True, False], ids=["index", "sql"])
def test_a_port_that_matches_twice_gets_two_copies(box: Box, warm: bool) -> None:
    """SUB-15: one by its own filter and one through each of its groups."""
    create_group(box)
    box.add_group("Second", ["P"], "exists(Region)")
    [published] = box.agent(warm=warm).publish([Message.of(b"x", promoted={Region: "both"})])
    assert published.subscribers == ("Other", "P", "P", "P")
    assert read_queues(box) == [WORK, WORK, WORK]
    assert len({row.instance_id for row in box.queued_rows()}) == 3
    assert box.count_references("message") == 4


def test_a_message_directed_to_a_group_reaches_every_member(box: Box) -> None:
    """SUB-16, FLT-04: with or without a filter."""
    for name in ("One", "Two", "Three"):
        box.add_port(name)
    group_id = box.add_group("G", ["One", "Two"])
    [published] = box.agent().publish([Message.of(b"x", promoted={BTS.SPGroupID: str(group_id)})])
    assert published.subscribers == ("One", "Two")
    assert box.queued() == {"One": 1, "Two": 1}


def test_the_subscriptions_of_members_name_their_group(box: Box) -> None:
    create_group(box)
    found = [
        (subscription.service_name, subscription.group, subscription.state.name)
        for subscription in list_subscriptions(box.connection)
    ]
    assert sorted(found, key=str) == [
        ("Other", "G", "STOPPED"),
        ("Other", None, "STOPPED"),
        ("P", "G", "STARTED"),
        ("P", None, "STARTED"),
    ]
    (through,) = (
        subscription for subscription in list_subscriptions(box.connection, service="P") if subscription.group == "G"
    )
    group_id = read_send_port_groups(box.connection)[0].group_id
    assert through.filter == (f"BTS.SPGroupID == '{group_id}' or Orders.Region == 'group' or Orders.Region == 'both'")


# -- resuming ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "publish", [publish_by_index, publish_by_sql, publish_by_stream], ids=["index", "sql", "stream"]
)
@pytest.mark.parametrize("first", ["port", "group"])
def test_the_last_start_of_port_or_group_resumes_the_suspended_messages(box: Box, publish: Publish, first: str) -> None:
    create_group(box, group="stopped", port="stopped")
    publish(box, "both")
    numbers = [row.seq for row in box.suspended_rows() if row.port != "Other"]
    assert read_queues(box) == [SUSPENDED, SUSPENDED]
    if first == "port":
        assert ports.start(box.connection, "P").resumed == 1, "messages matched by its own filter"
        assert read_queues(box) == [SUSPENDED, WORK]
        assert groups.start(box.connection, "G").resumed == 1
    else:
        assert groups.start(box.connection, "G").resumed == 0
        assert read_queues(box) == [SUSPENDED, SUSPENDED]
        assert ports.start(box.connection, "P").resumed == 2
    assert read_queues(box) == [WORK, WORK]
    assert [row.seq for row in box.queued_rows()] == numbers, "with their old numbers"


def test_an_operator_can_resume_a_message_of_a_stopped_group(box: Box) -> None:
    create_group(box, group="stopped")
    publish_by_index(box, "group")
    [instance] = [row.instance_id for row in box.suspended_rows() if row.port == "P"]
    assert box.one("SELECT count(*) FROM resume_instances(%s)", [instance]) == 1
    assert read_queues(box) == [WORK]


def test_a_group_resumes_its_messages_after_it_was_unenlisted_and_started_again(box: Box) -> None:
    create_group(box, group="stopped")
    publish_by_index(box, "group")
    groups.unenlist(box.connection, "G")
    ports.stop(box.connection, "P")
    assert ports.start(box.connection, "P").resumed == 0, "the group is not started"
    groups.enlist(box.connection, "G")
    assert groups.start(box.connection, "G").resumed == 1


def test_starting_the_port_resumes_messages_of_a_removed_group(box: Box) -> None:
    create_group(box, group="stopped")
    publish_by_index(box, "group")
    ports.stop(box.connection, "P")
    publish_by_index(box, "direct")
    groups.unenlist(box.connection, "G")
    box.delete_all("group members")
    box.delete_all("send port groups")
    assert ports.start(box.connection, "P").resumed == 2
    assert read_queues(box) == [WORK, WORK]


# -- rejected transitions ------------------------------------------------------------------------------------------


def test_a_group_allows_the_same_transitions_as_a_port(box: Box) -> None:
    create_group(box, group="bound")
    allowed = {"bound": ("enlist", "start"), "stopped": ("start", "unenlist"), "started": ("stop", "unenlist")}
    operations = {"enlist": groups.enlist, "start": groups.start, "stop": groups.stop, "unenlist": groups.unenlist}
    ways = {"bound": [], "stopped": [groups.enlist], "started": [groups.start]}
    for state, way in ways.items():
        for name, operation in operations.items():
            if read_states(box)["G"] != "bound":
                groups.unenlist(box.connection, "G")
            for step in way:
                step(box.connection, "G")
            if name in allowed[state]:
                assert operation(box.connection, "G").before is ServiceState[state.upper()]
            else:
                with pytest.raises(
                    StateError, match=rf"Send port group 'G' is (already {state}|{state} and cannot {name})\."
                ):
                    operation(box.connection, "G")
    assert read_states(box)["P"] == "started", "SPT-11: a group never changes its members"


def test_a_group_starts_only_with_an_enlisted_member(box: Box) -> None:
    """SPT-11."""
    box.add_port("P", state="bound")
    box.add_group("Empty", [], "exists(Region)", state="stopped")
    box.add_group("Idle", ["P"], "exists(Region)", state="stopped")
    assert list_subscriptions(box.connection) == []
    for name in ("Empty", "Idle"):
        with pytest.raises(StateError, match="it has no enlisted member"):
            groups.start(box.connection, name)
    with pytest.raises(PublishFailed):
        box.agent().publish([Message.of(b"", promoted={Region: "EU"})])
    ports.enlist(box.connection, "P")
    assert [(subscription.service_name, subscription.group) for subscription in list_subscriptions(box.connection)] == [
        ("P", None),
        ("P", "Idle"),
    ]
    groups.start(box.connection, "Idle")
    publish_by_index(box, "EU")
    assert read_queues(box) == [SUSPENDED], "it is enlisted, but stopped"


def test_the_last_enlisted_member_cannot_be_unenlisted(box: Box) -> None:
    """SPT-12."""
    create_group(box)
    ports.unenlist(box.connection, "Other")
    for state in ("started", "stopped"):
        assert read_states(box)["G"] == state
        with pytest.raises(StateError, match="last enlisted member of the group 'G'"):
            ports.unenlist(box.connection, "P")
        if state == "started":
            groups.stop(box.connection, "G")
    groups.unenlist(box.connection, "G")
    ports.unenlist(box.connection, "P")
    assert list_subscriptions(box.connection) == []


def test_an_unknown_group_is_reported_with_suggestions(box: Box) -> None:
    create_group(box)
    with pytest.raises(NotFound, match="'Nobody'") as caught:
        groups.start(box.connection, "Nobody")
    assert caught.value.hint == "The send port groups are: G."


def _read_id(box: Box, name: str) -> object:
    return box.port(name).port_id
