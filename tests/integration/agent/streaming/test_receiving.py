"""Interchanges pass through the pipeline into the MessageBox: RCV-12, 15, NRF-05, 06, MSG-07, CTX-20, and receipts."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from decimal import Decimal
from operator import itemgetter

import pytest

from postroom import pipelines
from postroom.agent.routing.table import Routing, RoutingTable
from postroom.agent.streaming import interchange as chunks
from postroom.agent.streaming import receiver as receiving
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.filters.columns import Columns
from postroom.filters.index import Piece
from postroom.message import Bytes, FileSlice
from postroom.messagebox.connection import connect
from postroom.messagebox.queues import QueueTask
from postroom.messagebox.storage.receipts import read_progress
from postroom.operations.ports import send_ports
from postroom.properties import DistinguishedField
from postroom.schemas import PromotedField, Schema, Schemas, WrittenField
from postroom.system_properties import BTS
from tests.support.box import PROMOTE, Box, Region, Total, interchange


def line(region: str = "EU", total: float = 1, **more: object) -> bytes:
    return json.dumps({"region": region, "total": total, **more}).encode()


def test_lines_become_messages_with_stamped_contexts(box: Box) -> None:
    location = box.add_location()
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    [received] = box.receive(location, line("EU", 10.5) + b"\n" + line("US", 2) + b"\n")
    assert (received.published, received.suspended) == (2, 0)
    contexts = [message.context for message in box.messages()]
    assert [context[BTS.InterchangeSequenceNumber] for context in contexts] == [1, 2]
    assert {context[BTS.InterchangeID] for context in contexts} == {str(received.interchange_id)}
    first = contexts[0]
    for prop in (BTS.ReceivePortID, BTS.ReceivePortName, BTS.InboundTransportLocation, BTS.InboundTransportType):
        assert first.is_promoted(prop)
    assert first.is_promoted(Region)
    assert str(first[Total]) == "10.5"
    assert first[BTS.ReceiveLocationName] == "drop"
    assert not first.is_promoted(BTS.ReceiveLocationName)
    assert BTS.MessageType not in first
    assert set(box.bodies()) == {line("EU", 10.5), line("US", 2)}
    assert {message.published_by for message in box.messages()} == {box.host().role_name}


def test_a_bad_line_is_suspended_alone_with_its_bytes(box: Box) -> None:
    """RCV-13, RCV-14."""
    location = box.add_location()
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    [received] = box.receive(location, line() + b"\n{broken\n" + line() + b"\n")
    assert (received.published, received.suspended) == (2, 1)
    assert box.suspended() == [("PIPELINE", True)]
    assert box.suspended_rows()[0].body == (b"{broken")
    assert "Line 2" in box.read_error()


def test_records_of_a_flat_file_become_xml_and_a_bad_record_is_suspended_as_received(box: Box) -> None:
    """RCV-11, RCV-14."""
    record = pipelines.Delimited(["region", pipelines.Field("total", Decimal)], delimiter=";")
    flat = pipelines.FlatFile(message_type="Order", record=record, promote={Region: "region", Total: "total"})
    location = box.add_location(flat)
    box.add_port("Europe", "Region == 'EU' and Total > 9 and BTS.MessageType == 'Order'")
    [received] = box.receive(location, b"EU;10.50\nEU;much\n")
    assert (received.published, received.suspended) == (1, 1)
    parts = sorted(((part.body, part.content_type) for part in box.parts()), key=itemgetter(1))
    assert parts == [
        (b"<Order><region>EU</region><total>10.50</total></Order>", "application/xml"),
        (b"EU;much\n", "text/plain"),
    ]
    assert "Line 2: total cannot be read." in box.read_error()


def test_a_value_of_the_wrong_type_suspends_only_its_message(box: Box) -> None:
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    location = box.add_location()
    wrong = b'{"region": "EU", "total": "a lot", "priority": 1}'
    first, second = box.receive(location, b"\n".join([line(), wrong, line()]), line("US"))
    assert (first.published, first.suspended, second.published, second.suspended) == (2, 1, 1, 0)
    assert box.suspended() == [("PIPELINE", True)]
    assert box.suspended_rows()[0].body == wrong
    why = box.read_error()
    assert "Orders.Total cannot be promoted from 'total'" in why
    assert "'a lot' is not a decimal number" in why


def test_an_unroutable_line_is_suspended_after_the_pipeline_with_a_routing_failure_report(box: Box) -> None:
    location = box.add_location()
    box.add_port("Europe", "Region == 'EU'")
    [received] = box.receive(location, line("EU") + b"\n" + line("US") + b"\n")
    assert (received.published, received.suspended) == (1, 1)
    assert sorted(box.suspended()) == [("ROUTING", False), ("ROUTING", True)]
    report = box.report()
    assert report.context.promoted[Region.key] == "US"
    assert report.part_ids == []
    assert report.related_instance_id == box.resumable_row().instance_id
    assert box.resumable_row().task == QueueTask.PUBLISH


@pytest.mark.parametrize("bad", [b"{broken", line("nowhere")])
def test_a_single_document_is_all_or_nothing(box: Box, bad: bytes) -> None:
    location = box.add_location(pipelines.Json(promote=PROMOTE))
    box.add_port("Europe", "Region == 'EU'")
    results = box.receive(location, line("EU"), bad, line("EU"))
    assert [(one.published, one.suspended) for one in results] == [(1, 0), (0, 1), (1, 0)]
    assert box.suspended_rows()[0].body == bad
    assert box.resumable_row().task == QueueTask.RECEIVE


def test_one_unroutable_document_suspends_a_standard_interchange(box: Box) -> None:
    location = box.add_location(pipelines.JsonLines(promote=PROMOTE, recoverable=False))
    box.add_port("Europe", "Region == 'EU'")
    whole = line("EU") + b"\n" + line("US") + b"\n" + line("EU") + b"\n"
    [received] = box.receive(location, whole)
    assert (received.published, received.suspended) == (0, 1)
    assert box.queued() == {}
    assert box.parts()[0].body == whole


def test_a_repeated_interchange_publishes_nothing(box: Box) -> None:
    location = box.add_location()
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    again = interchange(line() + b"\n{broken\n")
    with connect(box.url, user=box.host().role_name) as connection:
        first = Receiver(connection, RoutingTable()).receive(location, [again])
        second = Receiver(connection, RoutingTable()).receive(location, [again, interchange(line())])
        assert read_progress(connection, [again.interchange_id])[again.interchange_id].done
    assert (first[0].published, first[0].suspended) == (1, 1)
    assert [(one.published, one.suspended, one.empty) for one in second] == [(0, 0, False), (1, 0, False)]
    assert box.count("messages") == 3


def test_a_large_interchange_is_published_in_chunks_and_continues_after_the_last_receipt(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chunks, "CHUNK_ROWS", 10)
    location = box.add_location()
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    whole = interchange(b"\n".join(line(number=number) for number in range(35)))
    with connect(box.url, user=box.host().role_name) as connection:
        receiver = Receiver(connection, RoutingTable())
        # A concurrent attempt has published the first two chunks.
        box.add_receipt(whole.interchange_id, {"last": 20, "done": False})
        [received] = receiver.receive(location, [whole])
    assert received.published == 15
    numbers = [message.context[BTS.InterchangeSequenceNumber] for message in box.messages()]
    assert sorted(numbers) == list(range(21, 36))
    assert [receipt.outcome["done"] for receipt in box.receipts()].count(True) == 1
    assert box.count("messages") == 15


class SimulatedCrash(Exception):
    pass


def crash() -> bool:
    raise SimulatedCrash


def number_lines(count: int) -> Interchange:
    return interchange(b"\n".join(line(number=number) for number in range(1, count + 1)))


def read_published_numbers(box: Box) -> list[int]:
    return sorted(json.loads(body)["number"] for body in box.bodies())


@pytest.mark.parametrize("bad", [False, True])
def test_a_partly_published_interchange_continues_after_its_pipeline_became_standard(
    box: Box, monkeypatch: pytest.MonkeyPatch, bad: bool
) -> None:
    """The published documents cannot be withdrawn, and the rest must not count as published."""
    for module in (chunks, receiving):
        monkeypatch.setattr(module, "CHUNK_ROWS", 2)
    location = box.add_location()
    standard = location.replace_settings(
        pipeline=pipelines.JsonLines(promote=PROMOTE, recoverable=False).model_dump(mode="json")
    )
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    whole = interchange(b"\n".join([*(line(number=number) for number in range(1, 7)), *([b"{broken"] if bad else [])]))
    with connect(box.url, user=box.host().role_name) as connection:
        receiver = Receiver(connection, RoutingTable())
        with pytest.raises(SimulatedCrash):
            receiver.receive(location, [whole], pace=crash)
        assert box.queued() == {"Audit": 2}
        [received] = receiver.receive(standard, [whole])
        assert read_progress(connection, [whole.interchange_id])[whole.interchange_id].done
        assert receiver.receive(standard, [whole])[0].published == 0
    assert received.published == 4
    assert box.queued() == {"Audit": 6}
    # A bad document suspends the rest as a whole. It cannot be resumed, because the documents before are published.
    assert box.suspended() == ([("PIPELINE", False)] if bad else [])
    if bad:
        assert box.suspended_rows()[0].body == b"".join(whole.body.chunks())
    else:
        assert read_published_numbers(box) == [1, 2, 3, 4, 5, 6]


def test_an_interchange_is_suspended_if_a_changed_pipeline_does_not_find_the_rest(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (chunks, receiving):
        monkeypatch.setattr(module, "CHUNK_ROWS", 2)
    location = box.add_location()
    other = location.replace_settings(pipeline=pipelines.PassThrough().model_dump(mode="json"))
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    whole = number_lines(6)
    with connect(box.url, user=box.host().role_name) as connection:
        receiver = Receiver(connection, RoutingTable())
        with pytest.raises(SimulatedCrash):
            receiver.receive(location, [whole], pace=crash)
        [received] = receiver.receive(other, [whole])
    assert (received.published, received.suspended) == (0, 1)
    assert box.suspended() == [("PIPELINE", False)]
    assert box.suspended_rows()[0].body == b"".join(whole.body.chunks())
    assert "no document after the first 2, but" in box.read_error()


def test_concurrent_attempts_with_other_chunks_publish_every_document_once(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An abandoned task may still run, and the old and the new pipeline end their chunks at different documents."""
    location = box.add_location()
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    whole, other = number_lines(9), interchange(line(number=0))
    role = box.host().role_name
    with connect(box.url, user=role) as first, connect(box.url, user=role) as second:

        def set_chunk_rows(rows: int) -> None:
            for module in (chunks, receiving):
                monkeypatch.setattr(module, "CHUNK_ROWS", rows)

        def run_concurrent_attempt() -> bool:
            set_chunk_rows(3)
            with pytest.raises(SimulatedCrash):
                Receiver(second, RoutingTable()).receive(location, [whole], pace=crash)
            set_chunk_rows(2)
            return True

        set_chunk_rows(2)
        paces = iter([run_concurrent_attempt])
        received = Receiver(first, RoutingTable()).receive(
            location, [other, whole, whole], pace=lambda: next(paces, lambda: True)()
        )
    assert read_published_numbers(box) == list(range(10))
    assert sum(one.published for one in received) == 7


def test_a_large_body_is_streamed_from_its_file(box: Box, tmp_path: object) -> None:
    from pathlib import Path

    assert isinstance(tmp_path, Path)
    path = tmp_path / "big.bin"
    path.write_bytes(bytes(range(256)) * 4000)
    location = box.add_location(pipelines.PassThrough())
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    with connect(box.url, user=box.host().role_name) as connection:
        one = Interchange(interchange_id=uuid.uuid4(), body=FileSlice(path=path, length=path.stat().st_size))
        Receiver(connection, RoutingTable()).receive(location, [one])
    assert box.parts()[0].body is None
    assert b"".join(box.fragments()) == path.read_bytes()


@pytest.mark.parametrize("is_recoverable", [False, True])
def test_a_large_serialised_document_is_stored_whole(box: Box, is_recoverable: bool) -> None:
    """LRG-02: the envelope declares its namespace, so the document cannot be stored verbatim."""
    xml = pipelines.Xml(promote={Region: "/o:order/@r"}, namespaces={"o": "urn:o"}, split="/*/*")
    location = box.add_location(pipelines.Receive(disassemble=[xml], recoverable=is_recoverable))
    box.add_port("Europe", "Region == 'EU'")
    orders = [b'<order%s r="EU">' + b"x" * (size * 50_000) + b"</order>" for size in (3, 0, 4)]
    [received] = box.receive(location, b'<e xmlns="urn:o">%s</e>' % b"".join(order % b"" for order in orders))
    assert (received.published, received.suspended) == (3, 0)
    stored = [box.read_content(part.part_id) for part in box.parts() if part.body is None]
    assert stored == [order % b' xmlns="urn:o"' for order in orders[::2]]


def test_the_index_catches_up_when_ports_change_between_batches(box: Box) -> None:
    location = box.add_location()
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    with connect(box.url, user=box.host().role_name) as connection:
        receiver = Receiver(connection, RoutingTable())
        receiver.receive(location, [interchange(line())])
        box.add_port("Europe", "Region == 'EU'")
        receiver.receive(location, [interchange(line())])
        send_ports.stop(box.connection, "Audit")
        receiver.receive(location, [interchange(line())])
    assert box.queued() == {"Audit": 2, "Europe": 2}
    assert box.suspended() == [("PORT_STOPPED", True)]


def test_a_batch_is_matched_again_if_subscriptions_change_during_the_publish(
    box: Box, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subscriptions change after matching and before the routing lock."""
    location = box.add_location()
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")

    match_in_pieces = Routing.match_in_pieces

    def match_before_a_change(routing: Routing, columns: Columns, rows: int) -> Iterator[Piece]:
        monkeypatch.undo()
        yield from match_in_pieces(routing, columns, rows)
        box.add_port("Europe", "Region == 'EU'")
        send_ports.stop(box.connection, "Audit")

    monkeypatch.setattr(Routing, "match_in_pieces", match_before_a_change)
    with connect(box.url, user=box.host().role_name) as connection:
        [received] = Receiver(connection, RoutingTable()).receive(location, [interchange(line())])
    assert received.published == 1
    assert box.queued() == {"Europe": 1}
    assert box.suspended() == [("PORT_STOPPED", True)]


def test_an_empty_interchange_is_finished_without_messages(box: Box) -> None:
    location = box.add_location()
    one = interchange(b"")
    with connect(box.url, user=box.host().role_name) as connection:
        [received] = Receiver(connection, RoutingTable()).receive(
            location, [Interchange(interchange_id=one.interchange_id, body=Bytes(b""))]
        )
        assert read_progress(connection, [one.interchange_id])[one.interchange_id].done
    assert (received.published, received.suspended, received.empty) == (0, 0, True)
    assert box.count("messages") == 0


def test_only_an_interchange_without_documents_is_empty(box: Box) -> None:
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    location = box.add_location(pipelines.Xml(split="/orders/order"))
    bodies = (b"<orders/>", b"<orders><order/></orders>", b"<error>the service is down</error>", b"<order total='1'/>")
    received = box.receive(location, *bodies)
    assert [(one.published, one.suspended, one.empty) for one in received] == [
        (0, 0, True),
        (1, 0, False),
        (0, 1, False),
        (0, 1, False),
    ]
    suspended = {row.body for row in box.suspended_rows()}
    assert suspended == {bodies[2], bodies[3]}


def test_documents_of_an_envelope_are_routed_by_the_properties_of_their_schemas(box: Box) -> None:
    """RCV-09, CTX-11: properties are promoted from envelope and document. A distinguished field is only written."""
    note = DistinguishedField("/*[local-name()='order']/*[local-name()='note']")
    region = PromotedField(key=Region.key, type=int(Region.value_type), path="/*[local-name()='batch']/@*")
    order = Schema(message_type="order", distinguished=(WrittenField(path=note.name),))
    batch = Schema(message_type="batch", envelope=True, body="/*[local-name()='batch']", promoted=(region,))
    location = box.add_location(pipelines.XmlReceive(schemas=Schemas(schemas=(batch, order)), recoverable=True))
    box.add_port("Europe", "Region == 'EU'")
    (received,) = box.receive(
        location, b"<batch region='EU'><order><note>fragile</note></order><invoice/><order/></batch>"
    )
    assert (received.published, received.suspended) == (2, 1)
    assert box.queued() == {"Europe": 2}
    assert box.suspended_rows()[0].body == b"<invoice/>"
    contexts = [row.context for row in box.queued_rows()]
    assert sorted(str(context.get(note)) for context in contexts) == ["None", "fragile"]
    assert not any(context.is_promoted(note) for context in contexts)
    assert {context[BTS.MessageType] for context in contexts} == {"order"}


def test_one_unroutable_message_among_a_hundred_is_suspended(box: Box) -> None:
    """ACC-10: 99 messages are published. One is suspended, can be resumed, and has one report."""
    location = box.add_location()
    box.add_port("Europe", "Region == 'EU'")
    lines = [b'{"region":"%s"}' % (b"nowhere" if number == 57 else b"EU") for number in range(1, 101)]
    (received,) = box.receive(location, b"\n".join(lines))
    assert (received.published, received.suspended) == (99, 1)
    assert box.queued() == {"Europe": 99}
    assert box.suspended() == [("ROUTING", True), ("ROUTING", False)]
    assert box.resumable_row().context[BTS.InterchangeSequenceNumber] == 57


def test_documents_of_two_kinds_promote_different_fields_to_one_property(box: Box) -> None:
    """CTX-10."""
    box.add_port("Europe", "Region == 'EU'")
    orders = box.add_location(pipelines.Json(promote={Region: "region"}))
    invoices = box.add_location(pipelines.Json(promote={Region: "customer.area"}), port="InvoicesIn", name="invoices")
    box.receive(orders, b'{"region": "EU"}')
    box.receive(invoices, b'{"customer": {"area": "EU"}}')
    assert box.queued() == {"Europe": 2}
