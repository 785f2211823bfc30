"""ACC-32, 73, INS-12: bad documents, unroutable documents and documents without authenticated originator."""

from __future__ import annotations

import base64

import pytest

from postroom import BTS
from postroom.message import Context
from tests.support.installation import Installation

FIVE = [b'{"region": "EU"}', b'{"region": "MOON"}', b'{"region": "EU"}', b'{"region": ', b'{"region": "EU"}']


@pytest.mark.parametrize(
    ("recoverable", "published", "suspended"), [(False, 0, [b"\n".join(FIVE)]), (True, 3, [FIVE[1], FIVE[3]])]
)
def test_a_standard_interchange_is_suspended_whole_and_a_recoverable_interchange_document_by_document(
    installation: Installation, recoverable: bool, published: int, suspended: list[bytes]
) -> None:
    """ACC-32, NRF-16: of five documents the second is unroutable and the fourth is invalid."""
    installation.apply(
        f"""
        lines = pipelines.JsonLines(promote=PROMOTE, recoverable={recoverable})
        app.receive_port("In").location("drop", adapters.File("in"), pipeline=lines)
        app.send_port("Europe", adapters.Null(), filter=Region == "EU")
        """
    )
    assert installation.receive("drop", b"\n".join(FIVE)).published == published
    instances = installation.list_suspended("resumable")
    assert sorted(
        installation.run("message", "body", instance["instance_id"]).encode() for instance in instances
    ) == sorted(suspended)
    assert sum(port["waiting"] for port in installation.run_json("port", "list")) == published


@pytest.mark.parametrize(("recoverable", "suspended"), [(False, "interchange"), (True, "documents")])
def test_a_standard_interchange_is_suspended_as_received_and_a_document_as_disassembled(
    installation: Installation, recoverable: bool, suspended: str
) -> None:
    """INS-12: an interchange in base64. Its second document is unroutable and its fourth is invalid."""
    installation.apply(
        f"""
        from postroom.pipelines import components
        lines = pipelines.JsonLines(promote=PROMOTE, recoverable={recoverable})
        pipeline = pipelines.Receive(decode=[components.Base64()], disassemble=[lines])
        app.receive_port("In").location("drop", adapters.File("in"), pipeline=pipeline)
        app.send_port("Europe", adapters.Null(), filter=Region == "EU")
        """
    )
    interchange = base64.b64encode(b"\n".join(FIVE))
    installation.receive("drop", interchange)
    bodies = {
        installation.run("message", "body", instance["instance_id"]).encode()
        for instance in installation.list_suspended("resumable")
    }
    assert bodies == ({interchange} if suspended == "interchange" else {FIVE[1], FIVE[3]})


@pytest.mark.parametrize(("authentication", "suspended"), [("drop", []), ("keep", ["AUTHENTICATION"])])
def test_a_message_without_authenticated_originator_is_dropped_or_suspended(
    installation: Installation, authentication: str, suspended: list[str]
) -> None:
    """ACC-73."""
    installation.apply(
        f"""
        app.host("Main", trusted=True)
        port = app.receive_port("In", authentication="{authentication}")
        port.location("drop", adapters.File("in"), pipeline=pipelines.Json(promote=PROMOTE))
        app.send_port("Europe", adapters.Null(), filter=Region == "EU")
        """
    )
    received = installation.receive("drop", b'{"region": "EU"}')
    assert (received.published, received.suspended) == (0, len(suspended))
    assert [instance["error_code"] for instance in installation.list_suspended()] == suspended
    known = Context().write(BTS.OriginatorSID, "CONTOSO\\anna").write(BTS.OriginatorPID, "Contoso")
    assert installation.receive("drop", b'{"region": "EU"}', known).published == 1
    assert [instance["error_code"] for instance in installation.list_suspended()] == suspended
