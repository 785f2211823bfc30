"""Messages of several parts are received, stored once, read by hosts and released (LRG-08, RCV-09)."""

from __future__ import annotations

import email.message
import uuid

import pytest

from postroom import pipelines
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.message import FRAGMENT_SIZE, Bytes, Message, Part
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.storage.spool import get_message, read_part
from postroom.operations.messages import find_part
from postroom.pipelines import components
from postroom.system_properties import BTS
from tests.support.box import PROMOTE, Box, Region, interchange
from tests.support.dequeue import dequeue_all

PICTURE = bytes(range(256)) * (FRAGMENT_SIZE // 100)
EU, UNROUTABLE = b'{"region": "EU"}', b'{"region": "nowhere"}'


def mail(*lines: bytes) -> bytes:
    message = email.message.EmailMessage()
    message.set_content("See the attachments.")
    message.add_attachment(b"\n".join(lines), maintype="application", subtype="json", filename="orders.json")
    message.add_attachment(PICTURE, maintype="image", subtype="png", filename="map.png")
    return message.as_bytes()


def mail_pipeline(*, recoverable: bool = True) -> pipelines.Receive:
    return pipelines.Receive(
        decode=[components.Mime(body_type="application/json", allow_non_mime=True)],
        disassemble=[pipelines.JsonLines(promote=PROMOTE, recoverable=recoverable)],
    )


def assert_everything_is_cleaned_up(box: Box) -> None:
    """Run the jobs and assert that no message and no part is left."""
    assert check(box.connection) == []
    run_all_jobs_once(box.connection)
    assert (box.count("messages"), box.count("parts"), box.count("fragments")) == (0, 0, 0)
    assert check(box.connection) == []


@pytest.mark.parametrize("recoverable", [True, False])
def test_the_documents_of_an_interchange_share_its_other_parts(box: Box, recoverable: bool) -> None:
    location = box.add_location(mail_pipeline(recoverable=recoverable))
    for name in ("Europe", "Audit"):
        box.add_port(name, "Region == 'EU'")
    plain, mixed = box.receive(location, EU, mail(EU, EU, EU))
    assert (plain.published, mixed.published) == (1, 3)
    # Four bodies, and two parts that three documents share.
    assert (box.count("messages"), box.count("parts")) == (4, 6)
    assert check(box.connection) == []
    messages = dequeue_all(box)
    assert len(messages) == 8
    with_parts = [message for message in messages if len(message.parts) > 1]
    assert len(with_parts) == 6
    for message in with_parts:
        assert [part.name for part in message.parts] == ["part-1", "orders.json", "map.png"]
        assert (message.body_part_name, message.data) == ("orders.json", EU)
        assert message.parts[2].data == PICTURE
    assert_everything_is_cleaned_up(box)


def test_a_repeated_interchange_writes_nothing(box: Box) -> None:
    location = box.add_location(mail_pipeline())
    box.add_port("Europe", "Region == 'EU'")
    same = interchange(mail(EU, EU))
    with connect(box.url, user=box.host().role_name) as connection:
        receiver = Receiver(connection, RoutingTable())
        assert [one.published for _ in range(2) for one in receiver.receive(location, [same])] == [2, 0]
    assert box.count("parts") == 4
    assert check(box.connection) == []


def test_an_unroutable_document_is_suspended_with_all_its_parts(box: Box) -> None:
    location = box.add_location(mail_pipeline())
    box.add_port("Europe", "Region == 'EU'")
    [received] = box.receive(location, mail(UNROUTABLE, EU))
    assert (received.published, received.suspended) == (1, 1)
    message_id = box.resumable_row().message_id
    message = get_message(box.connection, message_id)
    assert [(part.name, part.is_body) for part in message.parts] == [
        ("part-1", False),
        ("orders.json", True),
        ("map.png", False),
    ]
    assert b"".join(read_part(box.connection, find_part(message, "map.png"))) == PICTURE
    assert b"".join(read_part(box.connection, find_part(message, None))) == UNROUTABLE
    assert check(box.connection) == []


def test_error_messages_are_clones_with_all_parts(box: Box) -> None:
    """SEC-16."""
    location = box.add_location(mail_pipeline(), route_failures=True)
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'")
    [received] = box.receive(location, mail(UNROUTABLE, EU, UNROUTABLE))
    assert (received.published, received.routed) == (1, 2)
    messages = dequeue_all(box)
    assert sorted((message.data, len(message.parts), message.body_part_name) for message in messages) == [
        (EU, 3, "orders.json"),
        (UNROUTABLE, 3, "orders.json"),
        (UNROUTABLE, 3, "orders.json"),
    ]
    assert all(message.parts[2].data == PICTURE for message in messages)
    assert check(box.connection) == []


def test_a_standard_interchange_that_fails_leaves_no_parts_behind(box: Box) -> None:
    location = box.add_location(mail_pipeline(recoverable=False))
    box.add_port("Europe", "Region == 'EU'")
    content = mail(EU, UNROUTABLE)
    [received] = box.receive(location, content)
    assert (received.published, received.suspended) == (0, 1)
    assert box.count("parts") == 1
    assert check(box.connection) == []


def test_a_published_message_with_parts_is_delivered_with_them(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.agent().publish([Message.of(EU, promoted={Region: "EU"}, parts=[Part(name="map.png", body=Bytes(PICTURE))])])
    [message] = dequeue_all(box)
    assert [(part.name, part.data) for part in message.parts] == [("body", EU), ("map.png", PICTURE)]
    assert_everything_is_cleaned_up(box)


def test_a_document_without_other_parts_has_the_default_body_name(box: Box) -> None:
    location = box.add_location(mail_pipeline())
    box.add_port("Europe", "Region == 'EU'")
    with connect(box.url, user=box.host().role_name) as connection:
        Receiver(connection, RoutingTable()).receive(
            location, [Interchange(interchange_id=uuid.uuid4(), body=Bytes(EU + b"\n" + EU))]
        )
    assert [message.body_part_name for message in dequeue_all(box)] == ["body", "body"]
    assert_everything_is_cleaned_up(box)


def test_the_message_type_is_that_of_the_body_part(box: Box) -> None:
    """MSG-03: another part is XML, too."""
    message = email.message.EmailMessage()
    message.set_content("See the attachments.")
    for name, content, subtype in (("note.xml", b"<note xmlns='urn:n'/>", "xml"), ("order", b"<order/>", "order+xml")):
        message.add_attachment(content, maintype="application", subtype=subtype, filename=name)
    pipeline = pipelines.Receive(
        decode=[components.Mime(body_type="application/order+xml")], disassemble=[pipelines.Xml()]
    )
    box.add_port("All", "exists(BTS.ReceivePortName)")
    box.receive(box.add_location(pipeline), message.as_bytes())
    [stored] = dequeue_all(box)
    assert [part.name for part in stored.parts] == ["part-1", "note.xml", "order"]
    assert stored.context[BTS.MessageType] == "order"
