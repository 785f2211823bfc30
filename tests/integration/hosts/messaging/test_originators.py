"""The login decides the originator of a message, not its context (SEC-07 … 10, ACC-71)."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from postroom import pipelines
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.originator import GUEST
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import NotAllowed
from postroom.message import Bytes, Context, Message
from postroom.messagebox.configuration.hosts import ServiceClass, read_hosts
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.operations.instances.changes import resume_with_body
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box, Region
from tests.support.host_settings import set_trust
from tests.support.recording_adapter import RecordingAdapter
from tests.support.unchecked_rows import COPY_ORIGINATORS, count_reference, insert_message, queue_message
from tests.support.waiting import wait_until

FORGED = Context().write(BTS.OriginatorSID, "CONTOSO\\boss").write(BTS.OriginatorPID, "Contoso")


@pytest.fixture(params=[False, True], ids=["untrusted", "trusted"])
def trusted(request: pytest.FixtureRequest, box: Box) -> bool:
    set_trust(box.connection, box.host().host_id, request.param)
    return bool(request.param)


def expected(box: Box, *, trusted: bool) -> tuple[str, str]:
    return ("CONTOSO\\boss", "Contoso") if trusted else (box.host().role_name, GUEST)


def deliver_all(box: Box, start_host: StartHost) -> list[tuple[Any, Any]]:
    """Deliver all messages and return the originators that the adapters of the receiving host got."""
    recorder = RecordingAdapter()
    start_host(recorder)
    wait_until(lambda: box.count("queued") == 0)
    return [
        (message.message.context.get(BTS.OriginatorSID), message.message.context.get(BTS.OriginatorPID))
        for message in recorder.sent
    ]


@pytest.mark.parametrize("warm", [True, False], ids=["index", "procedure"])
def test_the_direct_lane_stores_the_originator(box: Box, trusted: bool, warm: bool, start_host: StartHost) -> None:
    box.add_port("Europe", "Region == 'EU'")
    with connect(box.url, user=box.host().role_name) as connection:
        agent = DirectAgent(connection, box.host(), RoutingTable() if warm else None)
        agent.publish([Message(context=FORGED.promote(Region, "EU"))])
    assert deliver_all(box, start_host) == [expected(box, trusted=trusted)]


def test_the_streaming_lane_stores_the_originator(box: Box, trusted: bool, start_host: StartHost) -> None:
    location = box.add_location()
    box.add_port("Europe", "Region == 'EU'")
    with connect(box.url, user=box.host().role_name) as connection:
        interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(b'{"region":"EU"}\n' * 2), context=FORGED)
        Receiver(connection, RoutingTable()).receive(location, [interchange])
    assert deliver_all(box, start_host) == [expected(box, trusted=trusted)] * 2
    assert check(box.connection) == []


def test_messages_are_routed_by_the_authenticated_originator(box: Box, trusted: bool) -> None:
    """The pipeline promotes the party from the document, and a port subscribes to this party."""
    location = box.add_location(pipelines.JsonLines(promote={Region: "region", BTS.OriginatorPID: "party"}))
    box.add_port("Contoso", "BTS.OriginatorPID == 'Contoso'")
    box.add_port("Guests", "BTS.OriginatorPID == 'Guest'")
    box.receive(location, b'{"region":"EU","party":"Contoso"}')
    box.connection.execute("SELECT 1")
    with connect(box.url, user=box.host().role_name) as connection:
        promoted = Context().promote(BTS.OriginatorPID, "Contoso")
        DirectAgent(connection, box.host(), RoutingTable()).publish([Message(context=promoted)])
    assert box.queued() == ({"Contoso": 2} if trusted else {"Guests": 2})


def test_a_document_without_a_party_matches_no_party_and_an_empty_party_is_the_guest(box: Box, trusted: bool) -> None:
    """SEC-08: each row is matched by its stored originator."""
    location = box.add_location(pipelines.JsonLines(promote={Region: "region", BTS.OriginatorPID: "party"}))
    box.add_port("Contoso", "BTS.OriginatorPID == 'Contoso'")
    box.add_port("Guests", "BTS.OriginatorPID == 'Guest'")
    box.add_port("All", "exists(Region)")
    lines: list[dict[str, str | None]] = [{"party": "Contoso"}, {"party": ""}, {}, {"party": None}]
    box.receive(location, b"\n".join(json.dumps({"region": "EU", **line}).encode() for line in lines))
    expected = {"All": 4, "Contoso": 1, "Guests": 1} if trusted else {"All": 4, "Guests": 2}
    assert box.queued() == expected
    parties = sorted(message.originator_pid or "Guest" for message in box.messages())
    assert parties == (["Contoso"] if trusted else ["Guest"]) + ["Guest"] * 3


def test_the_default_originator_of_a_trusted_host_is_the_host_and_guest(
    box: Box, trusted: bool, start_host: StartHost
) -> None:
    box.add_port("Europe", "Region == 'EU'")
    with connect(box.url, user=box.host().role_name) as connection:
        agent = DirectAgent(connection, box.host(), RoutingTable())
        agent.publish([Message(context=Context().promote(Region, "EU"))])
        agent.publish([Message(context=Context().promote(Region, "EU").write(BTS.OriginatorSID, ""))])
    assert deliver_all(box, start_host) == [(box.host().role_name, GUEST)] * 2


def test_a_fixed_and_resumed_message_keeps_its_originator(box: Box, trusted: bool, start_host: StartHost) -> None:
    box.add_port("Europe", "Region == 'EU'", state="stopped")
    with connect(box.url, user=box.host().role_name) as connection:
        agent = DirectAgent(connection, box.host(), RoutingTable())
        agent.publish([Message(context=FORGED.promote(Region, "EU"), parts=Message.of(b"old").parts)])
    resume_with_body(box.connection, box.suspended_rows()[0].instance_id, b"new")
    assert deliver_all(box, start_host) == [expected(box, trusted=trusted)]


def test_an_untrusted_login_cannot_write_the_originator(box: Box, trusted: bool) -> None:
    with connect(box.url, user=box.host().role_name) as connection:
        for column in ("originator_sid", "originator_pid", "published_by"):
            if trusted and column != "published_by":
                insert_message(connection, uuid.uuid4(), FORGED, column=column)
                continue
            with pytest.raises(NotAllowed):
                insert_message(connection, uuid.uuid4(), FORGED, column=column)
        with connection.cursor() as cursor:
            if trusted:
                with cursor.copy(COPY_ORIGINATORS) as rows:
                    rows.write(f"{uuid.uuid4()}\t{{}}\t{{}}\tCONTOSO\n")
            else:
                with pytest.raises(NotAllowed), cursor.copy(COPY_ORIGINATORS):
                    pass


def test_a_receiver_gets_the_authenticated_originator(box: Box, start_host: StartHost) -> None:
    """An untrusted host bypasses the Message Agent and writes the rows itself."""
    box.add_port("Europe", "Region == 'EU'")
    message_id = uuid.uuid4()
    with connect(box.url, user=box.host().role_name) as connection, connection.transaction():
        insert_message(connection, message_id, FORGED)
        queue_message(
            connection,
            message_id,
            host_id=box.host().host_id,
            service_class=ServiceClass.MESSAGING_IN_PROCESS,
            service_id=box.port().port_id,
        )
        count_reference(connection, message_id)
    assert deliver_all(box, start_host) == [(box.host().role_name, GUEST)]


def test_revoked_trust_applies_to_the_next_batch(box: Box, monkeypatch: pytest.MonkeyPatch) -> None:
    """The routing table is stale. The MessageBox rejects the batch, and the batch is written again."""
    set_trust(box.connection, box.host().host_id)
    location = box.add_location()
    box.add_port("Europe", "Region == 'EU'")
    with connect(box.url, user=box.host().role_name) as connection:
        routing = RoutingTable()
        receiver = Receiver(connection, routing)

        def interchange() -> Interchange:
            return Interchange(interchange_id=uuid.uuid4(), body=Bytes(b'{"region":"EU"}'), context=FORGED)

        receiver.receive(location, [interchange()])
        set_trust(box.connection, box.host().host_id, False)
        catch_up = routing.catch_up
        stale = iter([lambda _: None])
        monkeypatch.setattr(routing, "catch_up", lambda connection: next(stale, catch_up)(connection))
        receiver.receive(location, [interchange()])
    assert [message.originator_sid for message in box.messages()] == ["CONTOSO\\boss", None]


def test_a_login_cannot_run_a_trusted_host_and_another_host(box: Box) -> None:
    """SEC-09."""
    other = box.add_host("Other")
    box.connection.execute("CREATE ROLE shared LOGIN")
    for host in (box.host(), other):
        box.connection.execute(f"GRANT {host.role_name} TO shared")
    with pytest.raises(NotAllowed, match="shared also runs the host Other"):
        set_trust(box.connection, box.host().host_id)
    assert not any(host.trusted for host in read_hosts(box.connection))
