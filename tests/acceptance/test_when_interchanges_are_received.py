"""ACC-32, 73, INS-12: interchanges with bad and unroutable documents, and senders that nobody knows.

Files pass through a pipeline process, which all tests share."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import NOT_DURABLE, SMALL, start_server
from tests.support.databases import Databases
from tests.support.folders import open_folder
from tests.support.installation import Installation
from tests.support.waiting import wait_until

KEY = "0123456789abcdef0123456789abcdef"
DECLARATIONS = f"""
from postroom.message import Message
from postroom.pipelines import components

PartnerKey = Property("Partners.Key", str)
app.property(PartnerKey)
app.host("Main", trusted=True)

def name_the_account(message: Message) -> Message:
    return message.with_context(message.context.write(BTS.OriginatorSID, "partner gateway"))

for name in ("standard", "recoverable"):
    lines = pipelines.JsonLines(promote=PROMOTE, recoverable=name == "recoverable")
    pipeline = pipelines.Receive(decode=[components.Base64()], disassemble=[lines])
    app.receive_port(name).location(name, adapters.File(name), pipeline=pipeline)
for name in ("drop", "keep"):
    partners = components.PartyByKey({{components.key_hash("{KEY}"): "Contoso"}}, property="Partners.Key")
    pipeline = pipelines.Receive(
        decode=[name_the_account],
        disassemble=[pipelines.Json(promote={{**PROMOTE, PartnerKey: "key"}})],
        resolve_party=[partners],
    )
    app.receive_port(name, authentication=name).location(name, adapters.File(name), pipeline=pipeline)
app.send_port("Europe", adapters.File("europe"), filter=Region == "EU")
app.send_port("Moon", adapters.File("moon"), filter=Region == "MOON", state="bound")
"""


@pytest.fixture(scope="module")
def installation() -> Iterator[Installation]:
    """Yield an installation with a pipeline process and a host. Its server is not shared, because other tests check all
    sessions of their server."""
    with (
        open_folder() as home,
        start_server(NOT_DURABLE | SMALL) as server,
        Databases(server) as databases,
        databases.clone() as url,
        Installation(home, url) as opened,
    ):
        opened.apply(DECLARATIONS)
        opened.start_pipeline()
        with opened.run_host():
            yield opened
        opened.run("check")


def list_instances(installation: Installation, *conditions: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = installation.run_json("instance", "list", *conditions)
    return found


def read_bodies(installation: Installation, *conditions: str) -> dict[bytes, str]:
    """Return the bodies of instances, and their ids."""
    return {
        installation.run("message", "body", one["instance_id"]).encode(): one["instance_id"]
        for one in list_instances(installation, *conditions)
    }


def wait_until_sent(installation: Installation, folder: str, texts: set[bytes], *, of: str) -> None:
    """Wait until the documents of a location have been sent, and no others."""
    unsent = ("--state", "ready", "--state", "active")
    wait_until(lambda: list_instances(installation, *unsent) == [], what="no message that can be sent")
    wait_until(lambda: select(installation.read_files(folder), of) >= texts, what=f"{len(texts)} files in {folder}")
    assert select(installation.read_files(folder), of) == texts


def select(bodies: list[bytes], text: str) -> set[bytes]:
    return {body for body in bodies if text.encode() in body}


@pytest.mark.parametrize("location", ["standard", "recoverable"])
def test_a_standard_interchange_is_suspended_as_received_and_a_recoverable_one_document_by_document(
    installation: Installation, tmp_path: Path, location: str
) -> None:
    """ACC-32, INS-12, NRF-16: an interchange in base64. Of its five documents the second has no subscriber and the
    fourth is invalid. Corrected, the interchange is received from the start, and a document continues where it was."""
    regions = (b'"EU"', b'"MOON"', b'"EU"', b"", b'"EU"')
    first, unroutable, third, invalid, fifth = documents = [
        b'{"location": "%s", "number": %d, "region": %s}' % (location.encode(), number, region)
        for number, region in enumerate(regions)
    ]
    corrected = invalid.replace(b'"region": ', b'"region": "EU"')
    interchange = base64.b64encode(b"\n".join(documents))
    resumable = ("--port", location, "--state", "resumable")
    installation.drop_file("orders.txt", interchange, location)
    is_whole = location == "standard"
    expected = {interchange} if is_whole else {unroutable, invalid}
    wait_until(lambda: list_instances(installation, *resumable), what="what is suspended")
    suspended = read_bodies(installation, *resumable)
    assert suspended.keys() == expected
    wait_until_sent(installation, "europe", set() if is_whole else {first, third, fifth}, of=location)

    body = tmp_path / "corrected"
    body.write_bytes(base64.b64encode(b"\n".join([*documents[:3], corrected, fifth])) if is_whole else corrected)
    installation.run("port", "start", "Moon")
    for original, instance_id in suspended.items():
        replacement = () if original == unroutable else ("--body", str(body))
        installation.run("instance", "resume", instance_id, *replacement)
    wait_until(lambda: list_instances(installation, *resumable) == [], what="nothing suspended")
    wait_until_sent(installation, "europe", {first, third, corrected, fifth}, of=location)
    wait_until_sent(installation, "moon", {unroutable}, of=location)
    installation.run("port", "unenlist", "Moon")


@pytest.mark.parametrize("location", ["drop", "keep"])
def test_a_message_without_authenticated_originator_is_dropped_or_suspended(
    installation: Installation, location: str
) -> None:
    """ACC-73: the sender is not told. The file of a dropped message is deleted as if it had been published."""
    known, unknown = (
        b'{"location": "%s", "region": "EU", "key": "%s"}' % (location.encode(), key)
        for key in (KEY.encode(), b"x" * 32)
    )
    installation.drop_file("unknown", unknown, location)
    installation.drop_file("known", known, location)
    wait_until_sent(installation, "europe", {known}, of=location)
    wait_until(lambda: count_waiting(installation, location) == 0, what="both files received")
    assert installation.read_files(location) == []
    suspended = list_instances(installation, "--port", location)
    assert [one["error_code"] for one in suspended] == ([] if location == "drop" else ["AUTHENTICATION"])
    assert read_bodies(installation, "--port", location).keys() == (set() if location == "drop" else {unknown})
    for one in suspended:
        installation.run("instance", "terminate", one["instance_id"])
    wait_until_sent(installation, "europe", {known}, of=location)


def count_waiting(installation: Installation, location: str) -> int:
    [shown] = [one for one in installation.run_json("pipeline", "show") if one["location"] == location]
    return int(shown["waiting"])
