"""Pipelines with components: decoded bodies, two formats at one location, and suspended interchanges (RCV-01)."""

from __future__ import annotations

import gzip
import json
import uuid
from operator import itemgetter

import pytest

from postroom import pipelines
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE, Bytes
from postroom.messagebox.maintenance.check import check
from postroom.pipelines import components
from tests.support.box import PROMOTE, Box, Region

LINE = json.dumps({"region": "EU", "total": 1}).encode()


@pytest.fixture
def pipeline() -> pipelines.Receive:
    formats = [pipelines.Xml(promote={Region: "/order/region"}), pipelines.JsonLines(promote=PROMOTE)]
    return pipelines.Receive(decode=[components.Gzip()], disassemble=formats, recoverable=True)


def test_two_formats_are_received_in_one_transaction(box: Box, pipeline: pipelines.Receive) -> None:
    location = box.add_location(pipeline)
    box.add_port("Europe", "Region == 'EU'")
    xml = b"<order><region>EU</region></order>"
    results = box.receive(location, gzip.compress(LINE + b"\n" + LINE), gzip.compress(xml))
    assert [(one.published, one.suspended) for one in results] == [(2, 0), (1, 0)]
    stored = sorted(((part.body, part.content_type) for part in box.parts()), key=itemgetter(1))
    assert stored == [(LINE, "application/json")] * 2 + [(xml, "application/xml")]
    assert check(box.connection) == []


def test_a_large_decoded_body_is_stored_in_fragments(box: Box) -> None:
    location = box.add_location(pipelines.Receive(decode=[components.Gzip()]))
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    content = bytes(range(256)) * (3 * FRAGMENT_SIZE // 256 + 1)
    [received] = box.receive(location, gzip.compress(content))
    assert received.published == 1
    assert b"".join(box.fragments()) == content


def test_an_undecodable_interchange_is_suspended_alone_and_as_received(box: Box, pipeline: pipelines.Receive) -> None:
    location = box.add_location(pipeline)
    box.add_port("Europe", "Region == 'EU'")
    cut_short = gzip.compress(LINE)[:-4]
    good, bad, other = box.receive(location, gzip.compress(LINE), cut_short, gzip.compress(LINE))
    assert (good.published, bad.suspended, other.published) == (1, 1, 1)
    assert box.suspended_rows()[0].body == cut_short
    assert box.read_error().startswith("Gzip: The gzip content is truncated.")


def test_a_resumed_interchange_passes_through_the_same_components(box: Box, pipeline: pipelines.Receive) -> None:
    location = box.add_location(pipeline)
    box.add_port("Europe", "Region == 'EU'")
    receiver = Receiver(box.connection, RoutingTable())

    def resume(body: bytes) -> None:
        resumed = Interchange(interchange_id=uuid.uuid4(), body=Bytes(body))
        receiver.receive_again(location, resumed, lambda _: None)

    resume(gzip.compress(LINE))
    assert box.queued() == {"Europe": 1}
    with pytest.raises(PipelineFailure, match="Gzip: The content is not gzip"):
        resume(LINE)
