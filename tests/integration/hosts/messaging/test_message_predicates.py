"""Message predicates in both lanes: only hosts with the required properties receive (SEC-01 … 06, NRF-17, ACC-70)."""

from __future__ import annotations

import json
import uuid

import pytest

from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import PublishFailed
from postroom.message import Bytes, Context, Message
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.storage.claimed_messages import StoredContext
from postroom.ports.receive_locations import ReceiveLocation
from postroom.properties import Property
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box, Region
from tests.support.changes import resume
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

Thumbprint = Property("Security.Thumbprint", str)
Level = Property("Security.Level", int)


@pytest.fixture(params=["index", "procedure"])
def warm(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "index")


@pytest.fixture
def two_hosts(box: Box) -> Box:
    """Host Secure has the thumbprint T and the levels 1 and 2, host Default nothing. Each has a port for EU."""
    secure = box.add_host("Secure")
    set_properties(box, secure.host_id, {Thumbprint.key: ["T"], Level.key: ["1", "2"]})
    box.add_port("Open", "Region == 'EU'")
    box.add_port("Closed", "Region == 'EU'", host="Secure")
    return box


def set_properties(box: Box, host_id: int, properties: dict[str, list[str]]) -> None:
    with box.connection.transaction():
        box.connection.execute("SELECT change_routing()")
        box.remove_host_properties(host_id)
        for key, values in properties.items():
            for value in values:
                box.add_host_property(host_id, key, value)


def order(**predicates: object) -> Message:
    known = {"thumbprint": Thumbprint, "level": Level}
    return Message.of(
        b"{}", promoted={Region: "EU"}, predicates={known[name]: value for name, value in predicates.items()}
    )


def receive(box: Box, location: ReceiveLocation, body: bytes, context: Context) -> None:
    with connect(box.url, user=box.host().role_name) as connection:
        interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(body), context=context)
        Receiver(connection, RoutingTable()).receive(location, [interchange])


def test_only_the_host_with_the_property_gets_the_message(two_hosts: Box, warm: bool) -> None:
    [published] = two_hosts.agent(warm=warm).publish([order(thumbprint="T")])
    assert published.subscribers == ("Closed",)
    assert two_hosts.queued() == {"Closed": 1}
    assert two_hosts.count("transient predicates") == 0
    assert check(two_hosts.connection) == []


def test_a_message_without_predicates_goes_to_all_hosts(two_hosts: Box, warm: bool) -> None:
    two_hosts.agent(warm=warm).publish([order()])
    assert two_hosts.queued() == {"Closed": 1, "Open": 1}


def test_all_predicates_must_match_and_a_host_may_have_several_values(two_hosts: Box, warm: bool) -> None:
    """PRED-13."""
    agent = two_hosts.agent(warm=warm)
    agent.publish([order(thumbprint="T", level=2)])
    assert two_hosts.queued() == {"Closed": 1}
    with pytest.raises(PublishFailed):
        agent.publish([order(thumbprint="T", level=3)])


def test_a_message_without_an_authorised_subscriber_is_a_routing_failure_with_the_reason(
    two_hosts: Box, warm: bool
) -> None:
    agent = two_hosts.agent(warm=warm)
    with pytest.raises(PublishFailed) as error:
        agent.publish([order(), order(thumbprint="X")])
    good, bad = error.value.results
    assert good.failure is None
    assert bad.failure is not None
    assert "no host that subscribes is authorised" in bad.failure.what
    assert bad.failure.why == "It requires a value of Security.Thumbprint that the hosts Default, Secure do not have."
    report = two_hosts.report()
    assert not report.resumable
    assert "authorised" in report.error_description
    assert two_hosts.queued() == {}
    assert check(two_hosts.connection) == []


def test_a_suspended_message_keeps_its_predicates_until_a_host_is_authorised(
    two_hosts: Box, warm: bool, start_host: StartHost
) -> None:
    box = two_hosts
    message = order(thumbprint="X")
    message = Message(context=message.context.promote(BTS.SuspendMessageOnRoutingFailure, True), parts=message.parts)
    [published] = box.agent(warm=warm).publish([message])
    assert published.suspended
    [context] = [json.dumps(one.stored_context) for one in box.messages() if one.body_part_id is not None]
    stored = StoredContext(context, {})
    assert stored.predicates == {(Thumbprint.key, "X")}
    instance_id = box.resumable_row().instance_id
    recorder = RecordingAdapter()
    start_host(recorder)
    resume(box.connection, instance_id)
    wait_until(lambda: ("ROUTING", True) in box.suspended())
    assert "authorised" in box.resumable_row().error_description
    set_properties(box, box.host().host_id, {Thumbprint.key: ["X"]})
    resume(box.connection, instance_id)
    wait_until(lambda: len(recorder.sent) == 1)
    assert box.count("transient predicates") == 0


def test_the_streaming_lane_checks_the_same_predicates(two_hosts: Box) -> None:
    location = two_hosts.add_location()
    context = Context().require(Thumbprint, "T")
    receive(two_hosts, location, b'{"region":"EU"}\n{"region":"EU"}', context)
    receive(two_hosts, location, b'{"region":"EU"}', Context())
    assert two_hosts.queued() == {"Closed": 3, "Open": 1}
    contexts = [StoredContext(json.dumps(one.stored_context), {}) for one in two_hosts.messages()]
    assert sorted(len(context.predicates) for context in contexts) == [0, 1, 1]
    assert check(two_hosts.connection) == []


def test_one_transaction_of_the_streaming_lane_can_contain_different_predicates(two_hosts: Box) -> None:
    box = two_hosts
    location = box.add_location()
    contexts = [Context(), Context().require(Thumbprint, "T"), Context().require(Thumbprint, "X"), Context()]
    with connect(box.url, user=box.host().role_name) as connection:
        received = Receiver(connection, RoutingTable()).receive(
            location,
            [
                Interchange(interchange_id=uuid.uuid4(), body=Bytes(b'{"region":"EU"}'), context=context)
                for context in contexts
            ],
        )
    assert [(interchange.published, interchange.suspended) for interchange in received] == [
        (1, 0),
        (1, 0),
        (0, 1),
        (1, 0),
    ]
    assert box.queued() == {"Closed": 3, "Open": 2}
    assert check(box.connection) == []


def test_an_unauthorised_message_of_the_streaming_lane_is_a_routing_failure_with_the_reason(two_hosts: Box) -> None:
    receive(two_hosts, two_hosts.add_location(), b'{"region":"EU"}', Context().require(Level, 7))
    assert two_hosts.suspended() == [("ROUTING", True), ("ROUTING", False)]
    assert all("no host that subscribes is authorised" in row.error_description for row in two_hosts.suspended_rows())
    assert two_hosts.queued() == {}


def test_changed_properties_of_a_host_apply_to_the_next_publish(two_hosts: Box) -> None:
    agent = two_hosts.agent()
    agent.publish([order(thumbprint="T")])
    set_properties(two_hosts, two_hosts.host("Secure").host_id, {})
    with pytest.raises(PublishFailed):
        agent.publish([order(thumbprint="T")])
    set_properties(two_hosts, two_hosts.host().host_id, {Thumbprint.key: ["T"]})
    assert agent.publish([order(thumbprint="T")])[0].subscribers == ("Open",)
