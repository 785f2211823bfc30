"""The message that the adapter of a send port gets, and the state after the delivery."""

from __future__ import annotations

import gzip
import uuid

import pytest

from postroom.adapters import Attempt
from postroom.hosts import HostInstance
from postroom.message import FRAGMENT_SIZE, Bytes, Message, Part
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.operations.ports import send_ports as ports
from postroom.pipelines import Send, components
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box, Priority, Region
from tests.support.recording_adapter import BlockedSend, RecordingAdapter
from tests.support.waiting import wait_until


def order(region: str = "EU", body: bytes = b"an order", **given: object) -> Message:
    return Message.of(body, promoted={Region: region}, **given)  # type: ignore[arg-type]


def wait_for_completed(instance: HostInstance, count: int) -> None:
    wait_until(lambda: instance.counts["completed"] >= count, what=f"{count} completed")


def test_the_adapter_gets_the_message_as_published(box: Box, start_host: StartHost) -> None:
    """DEQ-03."""
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=2, retry_seconds=120)
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    message = order(written={BTS.SourceParty: "Contoso"})
    box.agent().publish([message])
    wait_for_completed(instance, 1)
    (sent,) = recorder.sent
    assert sent.message.message_id == message.message_id
    assert sent.message.body == message.body
    assert sent.message.context[Region] == "EU"
    assert sent.message.context.is_promoted(Region)
    assert sent.message.context[BTS.SourceParty] == "Contoso"
    assert sent.attempt.number == 1


def test_the_context_contains_the_properties_of_the_send_port(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", retry_count=2, retry_seconds=120)
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    box.agent().publish([order(written={BTS.SPName: "a value of the publisher, which is replaced"})])
    wait_for_completed(instance, 1)
    context = recorder.sent[0].message.context
    assert context[BTS.SPName] == "Europe"
    assert context[BTS.SPID] == str(box.port().port_id)
    assert context[BTS.OutboundTransportLocation] == "null://"
    assert context[BTS.OutboundTransportType] == "NULL"
    assert context[BTS.RetryCount] == 2
    assert context[BTS.RetryInterval] == 2


def test_each_subscriber_gets_its_own_copy(box: Box, start_host: StartHost) -> None:
    for name in ("Europe", "Audit"):
        box.add_port(name, "Orders.Region == 'EU'")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    box.agent().publish([order()])
    wait_for_completed(instance, 2)
    assert sorted(one.port for one in recorder.sent) == ["Audit", "Europe"]
    assert len({one.attempt.instance_id for one in recorder.sent}) == 2


@pytest.mark.parametrize("size", [FRAGMENT_SIZE, FRAGMENT_SIZE + 1, 25 * FRAGMENT_SIZE + 7])
def test_a_large_body_is_streamed_in_fragments(box: Box, start_host: StartHost, size: int) -> None:
    """LRG-01."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    pieces: list[int] = []

    def read(message: Message, attempt: Attempt) -> None:
        assert message.body is not None
        pieces.extend(len(chunk) for chunk in message.body.body.chunks())

    recorder = RecordingAdapter(read)
    instance = start_host(recorder)
    body = bytes(range(256)) * (size // 256 + 1)
    box.agent().publish([order(body=body[:size])])
    wait_for_completed(instance, 1)
    assert recorder.bodies == [body[:size]]
    assert max(pieces) <= FRAGMENT_SIZE
    assert sum(pieces) == size


def test_all_parts_are_delivered_in_order_with_their_content_types(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    picture = Part(name="picture", body=Bytes(b"p" * (FRAGMENT_SIZE + 1)), content_type="image/png")
    note = Part(name="note", body=Bytes("früh".encode()), content_type="text/plain", charset="utf-8")
    message = order(parts=(picture, note))
    box.agent().publish([message])
    wait_for_completed(instance, 1)
    received = recorder.sent[0].message
    assert [part.name for part in received.parts] == ["body", "picture", "note"]
    assert [(part.part_id, part.content_type, part.charset) for part in received.parts] == [
        (part.part_id, part.content_type, part.charset) for part in message.parts
    ]
    assert received.body_part_name == "body"


def test_a_message_without_parts_is_delivered(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    box.agent().publish([Message.of(promoted={Region: "EU"})])
    wait_for_completed(instance, 1)
    assert recorder.sent[0].message.parts == ()


def test_higher_priorities_are_delivered_first(box: Box, start_host: StartHost) -> None:
    """DEQ-18, DEQ-10, DEQ-11: the message with the highest priority is published last and dequeued first."""
    box.add_port("Low", "Orders.Region == 'EU'", priority=10)
    box.add_port("High", "Orders.Region == 'US'", priority=1)
    box.set_dequeuing(threads=1)
    box.agent().publish([order("EU"), order("EU"), order("US")])
    recorder = RecordingAdapter()
    wait_for_completed(start_host(recorder), 3)
    assert [one.port for one in recorder.sent] == ["High", "Low", "Low"]


def test_messages_for_a_stopped_host_stay_queued(box: Box, start_host: StartHost) -> None:
    """DEQ-13."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish([order() for _ in range(10)])
    assert box.queued() == {"Europe": 10}
    assert box.suspended() == []
    recorder = RecordingAdapter()
    wait_for_completed(start_host(recorder), 10)
    assert len(recorder.sent) == 10


def test_stopping_a_port_keeps_its_queued_messages(box: Box, start_host: StartHost) -> None:
    """SPT-05, ACC-21, ACC-22: messages queued before are sent. Later messages wait for a start or a resume."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    agent = box.agent()
    agent.publish([order(body=b"before") for _ in range(50)])
    ports.stop(box.connection, "Europe")
    agent.publish([order(body=b"after") for _ in range(5)])
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    wait_for_completed(instance, 50)
    assert set(recorder.bodies) == {b"before"}
    assert box.suspended() == [("PORT_STOPPED", True)] * 5
    resumed = box.suspended_rows()[0].instance_id
    assert box.one("SELECT count(*) FROM resume_instances(ARRAY[%s::uuid])", resumed) == 1
    wait_for_completed(instance, 51)
    assert recorder.sent[-1].attempt.instance_id == resumed
    ports.start(box.connection, "Europe")
    wait_for_completed(instance, 55)
    assert box.suspended() == []


def test_a_message_for_a_deleted_port_is_suspended_with_the_reason(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish([order()])
    ports.unenlist(box.connection, "Europe")
    port_id = box.remove_port()
    instance = start_host(RecordingAdapter())
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert box.suspended() == [("PORT_GONE", True)]
    assert str(port_id) in box.read_error()


def test_a_changed_port_is_read_again_with_the_next_routing_version(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    agent = box.agent()
    agent.publish([order()])
    wait_for_completed(instance, 1)
    with box.connection.transaction():
        box.set_ports(uri="null://elsewhere", adapter={"kind": "file", "path": "else"})
        box.connection.execute("SELECT change_routing()")
    agent.publish([order()])
    wait_for_completed(instance, 2)
    context = recorder.sent[1].message.context
    assert (context[BTS.OutboundTransportLocation], context[BTS.OutboundTransportType]) == ("null://elsewhere", "FILE")
    assert (recorder.opened, recorder.closed) == (2, 1), "the old adapter is closed and the new one is opened"


def test_an_adapter_in_use_is_closed_after_its_last_send(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.add_port("Other", "Orders.Region == 'US'")
    blocked = BlockedSend()
    recorder = RecordingAdapter(blocked)
    instance = start_host(recorder)
    agent = box.agent()
    agent.publish([order()])
    wait_until(lambda: recorder.attempts)
    with box.connection.transaction():
        box.set_ports("Europe", adapter={"kind": "file", "path": "else"})
        box.connection.execute("SELECT change_routing()")
    agent.publish([order("US")])
    wait_until(lambda: len(recorder.attempts) == 2)
    assert recorder.closed == 0
    blocked.released.set()
    wait_for_completed(instance, 2)
    assert recorder.closed == 1


def test_delivered_messages_are_deleted_by_the_jobs(box: Box, start_host: StartHost) -> None:
    """REF-08, REF-07, DEQ-04."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.add_port("Audit", "exists(Orders.Region)", state="stopped")
    agent = box.agent()
    agent.publish([order(body=b"x" * 2 * FRAGMENT_SIZE)])
    instance = start_host(RecordingAdapter())
    wait_for_completed(instance, 1)
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 1, "the suspended instance keeps its reference (REF-09)"
    ports.start(box.connection, "Audit")
    wait_for_completed(instance, 2)
    assert (box.count("messages"), box.count("parts"), box.count("fragments")) == (1, 1, 2)
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert (box.count("messages"), box.count("parts"), box.count("fragments")) == (0, 0, 0)
    assert check(box.connection) == []


def test_a_reference_without_its_message_is_suspended(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    box.agent().publish([order(), order()])
    box.delete_message(box.messages()[0].message_id)
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    wait_for_completed(instance, 1)
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert box.suspended() == [("MESSAGE_GONE", True)]


def test_missing_fragments_suspend_the_message_at_once(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", retry_seconds=0)
    box.agent().publish([order(body=b"x" * 3 * FRAGMENT_SIZE)])
    box.delete_fragment(1)
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    wait_until(lambda: instance.counts["suspended"] == 1)
    assert recorder.attempts == []
    description = box.read_error()
    assert f"{2 * FRAGMENT_SIZE} of its {3 * FRAGMENT_SIZE} bytes" in description


def test_a_host_delivers_only_messages_of_its_own_ports(box: Box, start_host: StartHost) -> None:
    box.add_host("Other")
    box.add_port("Here", "Orders.Priority == 1")
    box.add_port("There", "Orders.Priority == 1", host="Other")
    message = Message.of(b"x", promoted={Priority: 1})
    box.agent().publish([message])
    here, there = RecordingAdapter(), RecordingAdapter()
    wait_for_completed(start_host(here), 1)
    assert [one.port for one in here.sent] == ["Here"]
    wait_for_completed(start_host(there, "Other"), 1)
    assert [one.port for one in there.sent] == ["There"]
    assert isinstance(there.sent[0].attempt.instance_id, uuid.UUID)


def test_the_send_pipeline_reads_all_fragments_and_parts_of_a_message(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    pipeline = Send(encode=[components.MimeEncoder(), components.GzipEncoder()])
    box.set_ports(pipeline=pipeline.model_dump(mode="json"))
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    body = bytes(range(256)) * (FRAGMENT_SIZE // 64)
    message = order(body=body, parts=[Part(name="map.png", body=Bytes(body[::-1]), content_type="image/png")])
    box.agent().publish([message])
    wait_for_completed(instance, 1)
    (sent,) = recorder.sent
    assert sent.message.message_id == message.message_id
    [part] = sent.message.parts
    decoded = components.Mime().decode(sent.message.with_body(gzip.decompress(part.data)))
    assert [(one.name, one.data) for one in decoded.parts] == [("body", body), ("map.png", body[::-1])]


def test_a_message_for_an_instance_that_no_host_has_is_suspended(box: Box, start_host: StartHost) -> None:
    start_host(RecordingAdapter())
    service = SubscribingService(service_id=uuid.uuid4(), name="Unknown")
    with connect(box.url, user=box.host().role_name) as connection:
        subscriptions = ServiceSubscriptions(box.host(), ServiceClass.MESSAGING_IN_PROCESS)
        subscriptions.wait(connection, service, uuid.uuid4(), Region == "EU")
    box.agent(warm=False).publish([order()])
    wait_until(lambda: box.suspended() == [("NO_RECEIVER", True)], what="the suspended message")
