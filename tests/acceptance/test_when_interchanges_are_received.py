"""ACC-32, 73, INS-12: what becomes of documents that are bad, that nobody wants, or that nobody stands for."""

from __future__ import annotations

import base64

import pytest

from postroom import BTS
from postroom.message import Context
from tests.support.house import House

FIVE = [b'{"region": "EU"}', b'{"region": "MOON"}', b'{"region": "EU"}', b'{"region": ', b'{"region": "EU"}']


@pytest.mark.parametrize(
    ("recoverable", "published", "suspended"), [(False, 0, [b"\n".join(FIVE)]), (True, 3, [FIVE[1], FIVE[3]])]
)
def test_a_standard_interchange_goes_down_as_a_whole_and_of_a_recoverable_one_what_is_bad(
    house: House, recoverable: bool, published: int, suspended: list[bytes]
) -> None:
    """ACC-32, NRF-16: of five documents nobody wants the second, and the fourth cannot be read."""
    house.apply(
        f"""
        lines = pipelines.JsonLines(promote=PROMOTE, recoverable={recoverable})
        app.receive_port("In").location("drop", adapters.File("in"), pipeline=lines)
        app.send_port("Europe", adapters.Null(), filter=Region == "EU")
        """
    )
    assert house.receive("drop", b"\n".join(FIVE)).published == published
    kept = house.suspended("resumable")
    assert sorted(house.run("message", "body", one["instance_id"]).encode() for one in kept) == sorted(suspended)
    assert sum(port["waiting"] for port in house.ask("port", "list")) == published


@pytest.mark.parametrize(("recoverable", "kept"), [(False, "interchange"), (True, "documents")])
def test_what_fails_is_kept_as_it_came_or_as_the_component_got_it(house: House, recoverable: bool, kept: str) -> None:
    """INS-12: an interchange in base64, whose second document nobody wants and whose fourth cannot be read."""
    house.apply(
        f"""
        from postroom.pipelines import components
        lines = pipelines.JsonLines(promote=PROMOTE, recoverable={recoverable})
        pipeline = pipelines.Receive(decode=[components.Base64()], disassemble=[lines])
        app.receive_port("In").location("drop", adapters.File("in"), pipeline=pipeline)
        app.send_port("Europe", adapters.Null(), filter=Region == "EU")
        """
    )
    interchange = base64.b64encode(b"\n".join(FIVE))
    house.receive("drop", interchange)
    bodies = {house.run("message", "body", one["instance_id"]).encode() for one in house.suspended("resumable")}
    assert bodies == ({interchange} if kept == "interchange" else {FIVE[1], FIVE[3]})


@pytest.mark.parametrize(("authentication", "suspended"), [("drop", []), ("keep", ["AUTHENTICATION"])])
def test_a_message_that_nobody_known_stands_for_is_dropped_or_kept(
    house: House, authentication: str, suspended: list[str]
) -> None:
    """ACC-73."""
    house.apply(
        f"""
        app.host("Main", trusted=True)
        port = app.receive_port("In", authentication="{authentication}")
        port.location("drop", adapters.File("in"), pipeline=pipelines.Json(promote=PROMOTE))
        app.send_port("Europe", adapters.Null(), filter=Region == "EU")
        """
    )
    received = house.receive("drop", b'{"region": "EU"}')
    assert (received.published, received.suspended) == (0, len(suspended))
    assert [one["error_code"] for one in house.suspended()] == suspended
    known = Context().write(BTS.OriginatorSID, "CONTOSO\\anna").write(BTS.OriginatorPID, "Contoso")
    assert house.receive("drop", b'{"region": "EU"}', known).published == 1
    assert [one["error_code"] for one in house.suspended()] == suspended
