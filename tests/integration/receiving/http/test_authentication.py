"""Receive ports drop or suspend messages without an authenticated originator (SEC-11, ACC-73)."""

from __future__ import annotations

import logging
import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.serialization import Encoding, pkcs7

from postroom import pipelines
from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.clock import system_clock
from postroom.errors import AuthenticationFailure
from postroom.message import FRAGMENT_SIZE, Bytes, Context
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.operations.explain.explanation import FailureHandling, explain_message
from postroom.operations.instances.changes import resume_with_body
from postroom.pipelines import ReceivePipeline, components
from postroom.pipelines.components.smime import thumbprint
from postroom.ports.receive_locations import ReceiveLocation
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box, Region
from tests.support.certificates import issue
from tests.support.changes import resume
from tests.support.host_settings import set_trust
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

KNOWN = Context().write(BTS.OriginatorSID, "CONTOSO\\anna").write(BTS.OriginatorPID, "Contoso")
PROMOTE = {Region: "region", BTS.OriginatorPID: "party"}
LINES = pipelines.JsonLines(promote=PROMOTE)
MIXED = b'{"region":"EU","party":"Contoso"}\n{"region":"EU"}\n{"region":"EU","party":"guest"}'
SID = Context().write(BTS.OriginatorSID, "CONTOSO\\anna")


def add_location(
    box: Box, authentication: str, pipeline: ReceivePipeline = LINES, *, trusted: bool = True
) -> ReceiveLocation:
    box.add_port("Europe", "Region == 'EU'")
    set_trust(box.connection, box.host().host_id, trusted)
    found = box.add_location(pipeline)
    box.set_authentication(authentication)
    return replace(found, port={**found.port, "authentication": authentication})


def receive(box: Box, location: ReceiveLocation, body: bytes, context: Context) -> ReceiveResult:
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(body), context=context)
    with connect(box.url, user=box.host().role_name) as connection:
        (received,) = Receiver(connection, RoutingTable()).receive(location, [interchange])
    assert check(box.connection) == []
    return received


@pytest.mark.parametrize("authentication", ["none", "drop", "keep"])
def test_a_message_with_an_authenticated_originator_is_received(box: Box, authentication: str) -> None:
    received = receive(box, add_location(box, authentication), b'{"region":"EU"}', KNOWN)
    assert (received.published, received.suspended, received.dropped) == (1, 0, 0)
    assert box.queued() == {"Europe": 1}


@pytest.mark.parametrize(
    "context",
    [
        Context(),
        SID,
        Context().write(BTS.OriginatorPID, "Contoso"),
        SID.write(BTS.OriginatorPID, "Guest"),
        SID.write(BTS.OriginatorPID, "S-1-5-7"),
        KNOWN.write(BTS.OriginatorSID, ""),
    ],
)
def test_drop_discards_and_counts_messages_without_an_authenticated_originator(
    box: Box, context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        received = receive(box, add_location(box, "drop"), b'{"region":"EU"}', context)
    assert (received.published, received.suspended, received.dropped) == (0, 0, 1)
    assert (box.queued(), box.suspended(), box.count("messages"), box.count("parts")) == ({}, [], 0, 0)
    assert [receipt.outcome for receipt in box.receipts()] == [{"last": 1, "done": True, "dropped": 1}]
    assert (
        ": 1 messages without an authenticated originator were dropped, as receive port OrdersIn requires"
        in caplog.text
    )


def test_interchanges_of_different_parties_are_routed_by_their_own_party(box: Box) -> None:
    location = add_location(box, "none", pipelines.Json(promote={Region: "region"}))
    for party in ("Contoso", "Fabrikam"):
        box.add_port(party, f"BTS.OriginatorPID == '{party}'")
    contexts = [SID.promote(BTS.OriginatorPID, "Contoso"), Context(), SID.promote(BTS.OriginatorPID, "Fabrikam")]
    interchanges = [
        Interchange(interchange_id=uuid.uuid4(), body=Bytes(b'{"region":"EU"}'), context=context)
        for context in contexts
    ]
    with connect(box.url, user=box.host().role_name) as connection:
        Receiver(connection, RoutingTable()).receive(location, interchanges)
    assert box.queued() == {"Europe": 3, "Contoso": 1, "Fabrikam": 1}


@pytest.mark.parametrize("trusted", [True, False])
def test_the_signer_of_a_message_is_its_authenticated_originator(box: Box, tmp_path: Path, trusted: bool) -> None:
    """SEC-12: the party is found by certificate. A host that is not trusted has no authenticated originator."""
    now = system_clock()
    today = (now - timedelta(days=1), now + timedelta(days=1))
    authority = issue("Authority", is_authority=True, elliptic=True, valid=today)
    sender = issue("Acme", issuer=authority, elliptic=True, valid=today)
    certificates, _ = authority.write(tmp_path, "authority")
    pipeline = pipelines.Receive(
        decode=[components.SMime(trusted=certificates), components.Mime()],
        disassemble=[pipelines.Json(promote={Region: "region"})],
        resolve_party=[components.PartyByCertificate({thumbprint(sender.certificate): "Acme"})],
    )
    order = b'Content-Type: application/json\r\n\r\n{"region": "EU"}'
    signer = pkcs7.PKCS7SignatureBuilder().set_data(order)
    signer = signer.add_signer(sender.certificate, sender.key, hashes.SHA256())
    mail = signer.sign(Encoding.SMIME, [pkcs7.PKCS7Options.DetachedSignature])
    received = receive(box, add_location(box, "keep", pipeline, trusted=trusted), mail, Context())
    assert (received.published, received.suspended) == ((1, 0) if trusted else (0, 1))
    if trusted:
        [message] = box.messages()
        assert (message.originator_sid, message.originator_pid) == ("CN=Acme", "Acme")


def test_drop_discards_single_messages_of_an_interchange(box: Box) -> None:
    received = receive(box, add_location(box, "drop"), MIXED, SID)
    assert (received.published, received.suspended, received.dropped) == (1, 0, 2)


def test_keep_suspends_each_message_of_a_recoverable_interchange(box: Box) -> None:
    received = receive(box, add_location(box, "keep"), MIXED, SID)
    assert (received.published, received.suspended, received.dropped) == (1, 2, 0)
    assert box.suspended() == [("AUTHENTICATION", True)] * 2
    assert set(box.bodies()) == set(MIXED.split(b"\n"))


def test_keep_suspends_a_standard_interchange_whole_and_stores_a_large_one_in_fragments(box: Box) -> None:
    location = add_location(box, "keep", pipelines.PassThrough())
    received = receive(box, location, b"x" * (2 * FRAGMENT_SIZE + 1), SID)
    assert (received.published, received.suspended) == (0, 1)
    assert box.suspended() == [("AUTHENTICATION", True)]
    assert box.count("fragments") == 3


def test_a_large_document_is_suspended_separately(box: Box) -> None:
    large = b'{"region":"EU","text":"' + b"x" * FRAGMENT_SIZE + b'"}'
    received = receive(box, add_location(box, "keep"), MIXED + b"\n" + large, SID)
    assert (received.published, received.suspended) == (1, 3)
    assert max(part.size for part in box.parts()) == len(large)


def test_a_host_that_is_not_trusted_has_no_authenticated_originator(box: Box) -> None:
    received = receive(box, add_location(box, "keep", trusted=False), b'{"region":"EU"}', KNOWN)
    assert (received.published, received.suspended) == (0, 1)


def test_a_suspended_message_is_authenticated_again_when_it_is_resumed(box: Box, start_host: StartHost) -> None:
    receive(box, add_location(box, "keep"), b'{"region":"EU"}', SID)
    instance_id = box.suspended_rows()[0].instance_id
    start_host(RecordingAdapter())
    resume(box.connection, instance_id)
    wait_until(lambda: box.suspended() == [("AUTHENTICATION", True)])
    resume_with_body(box.connection, instance_id, b'{"region":"EU","party":"Contoso"}')
    wait_until(lambda: box.count("instances") == 0)


def test_a_repeated_interchange_drops_nothing_twice(box: Box) -> None:
    location = add_location(box, "drop")
    interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(MIXED), context=SID)
    with connect(box.url, user=box.host().role_name) as connection:
        first, again = (Receiver(connection, RoutingTable()).receive(location, [interchange])[0] for _ in range(2))
    assert (first.dropped, again.dropped) == (2, 0)
    assert box.queued() == {"Europe": 1}


def test_a_suspended_message_is_explained(box: Box) -> None:
    receive(box, add_location(box, "keep", pipelines.Json(promote=PROMOTE)), b'{"region":"EU"}', SID)
    [suspended_id] = [row.message_id for row in box.suspended_rows() if row.error_code == "AUTHENTICATION"]
    [explained] = explain_message(box.connection, suspended_id)
    assert (explained.accepted, explained.failure_handling) == (False, FailureHandling.SUSPENDED)
    assert isinstance(explained.failure, AuthenticationFailure)
