"""Dynamic send ports in a running host: each message has its own address (SUB-10, SND-17, SND-18)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom.adapters import File
from postroom.adapters.dynamic.definition import Dynamic
from postroom.agent.error_messages import FAILURE_CODES
from postroom.errors import PublishFailed
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.operations.subscriptions import list_subscriptions
from postroom.properties import Property
from postroom.system_properties import BTS, ErrorReport
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support.box import Box, Region
from tests.support.http_receiver import http_receiver
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until


@pytest.fixture
def host(box: Box, tmp_path: Path) -> Iterator[HostInstance]:
    """Yield a running host with real adapters."""
    with HostInstance(box.url, "Default", tmp_path, settings=SETTINGS, as_role=True) as running:
        yield running


def add_port(
    box: Box, *, filter: str | None = "exists(Region)", retry_count: int = 3, route_failures: bool = False, **given: Any
) -> None:
    adapter = Dynamic(**given).model_dump(mode="json")
    box.add_port(
        "Anywhere",
        filter,
        adapter=adapter,
        retry_count=retry_count,
        retry_seconds=0,
        route_failures=route_failures,
    )


def publish(box: Box, address: str | None, transport_type: str | None = None, body: bytes = b"order") -> None:
    written: dict[Property, object] = {BTS.OutboundTransportLocation: address}
    if transport_type is not None:
        written[BTS.OutboundTransportType] = transport_type
    if address is None:
        del written[BTS.OutboundTransportLocation]
    box.agent().publish([Message.of(body, promoted={Region: "EU"}, written=written)])


def list_suspended(box: Box) -> list[tuple[str, str, str, bool]]:
    rows = box.suspended_rows()
    return [(row.error_code, row.adapter or "", row.uri or "", row.resumable) for row in rows]


def are_queues_empty(box: Box) -> bool:
    return box.count("queued") + box.count("scheduled") == 0


@pytest.mark.usefixtures("host")
def test_each_message_is_sent_to_its_own_address(box: Box, tmp_path: Path) -> None:
    with http_receiver() as receiver:
        add_port(box)
        publish(box, "file:out/one/%MessageID%.txt", body=b"one")
        publish(box, f"file://{tmp_path}/out/two/", body=b"two")
        publish(box, "out/three.txt", "FILE", body=b"three")
        publish(box, receiver.url, body=b"four")
        publish(box, f"{receiver.url}/elsewhere", "HTTP", body=b"five")
        wait_until(lambda: are_queues_empty(box), what="empty queues")
        assert box.count("suspended") == 0
        assert sorted(request.body for request in receiver.accepted) == [b"five", b"four"]
    assert [path.read_bytes() for path in (tmp_path / "out" / "one").glob("*.txt")] == [b"one"]
    assert [path.read_bytes() for path in (tmp_path / "out" / "two").iterdir()] == [b"two"]
    assert (tmp_path / "out" / "three.txt").read_bytes() == b"three"


@pytest.mark.usefixtures("host")
@pytest.mark.parametrize(
    ("address", "transport_type", "adapter"),
    [
        (None, None, "dynamic"),
        ("ftp://example.com/a", None, "dynamic"),
        ("file:out/a", "MSMQ", "dynamic"),
        ("file:../escaped", None, "file"),
        ("file:///etc/escaped", None, "file"),
        ("http://169.254.169.254/", None, "http"),
    ],
)
def test_a_message_that_cannot_be_sent_is_suspended_at_once_and_can_be_resumed(
    box: Box, address: str | None, transport_type: str | None, adapter: str
) -> None:
    """A retry would fail again. A resume succeeds after a change of the port."""
    add_port(box, urls=["https://example.com/"])
    publish(box, address, transport_type)
    wait_until(lambda: list_suspended(box), what="the suspended message")
    assert list_suspended(box) == [("ADDRESS", adapter, address or "", True)]


@pytest.mark.usefixtures("host")
def test_a_resumed_message_is_sent_after_the_port_allows_its_address(box: Box, tmp_path: Path) -> None:
    add_port(box, folders=["out"])
    publish(box, "file:other/a.txt")
    wait_until(lambda: list_suspended(box), what="the suspended message")
    box.merge_port("Anywhere", adapter={"folders": ["out", "other"]})
    box.connection.execute("SELECT change_routing()")
    box.resume_all()
    wait_until(lambda: (tmp_path / "other" / "a.txt").exists(), what="the file")


@pytest.mark.usefixtures("host")
def test_a_failed_send_is_retried_by_the_policy_of_the_port(box: Box) -> None:
    with http_receiver() as receiver:
        receiver.fail(times=2)
        add_port(box)
        publish(box, receiver.url)
        wait_until(lambda: len(receiver.accepted) == 1, what="the third attempt")
        receiver.fail(times=10)
        publish(box, receiver.url)
        wait_until(lambda: list_suspended(box), what="the suspended message")
        assert list_suspended(box) == [("DELIVERY", "http", receiver.url, True)]


def test_the_context_contains_the_properties_of_a_dynamic_send(box: Box, start_host: StartHost) -> None:
    add_port(box)
    recorder = RecordingAdapter()
    start_host(recorder)
    publish(box, "file:out/a")
    [sent] = wait_until(lambda: recorder.sent, what="the message")
    context = sent.message.context
    assert context[BTS.IsDynamicSend] is True
    assert context[BTS.OutboundTransportLocation] == "file:out/a"
    assert BTS.OutboundTransportType not in context
    assert (context[BTS.SPName], context[BTS.RetryCount]) == ("Anywhere", 3)


def test_a_message_is_directed_to_a_dynamic_port_by_the_port_id(box: Box) -> None:
    """SUB-10: a dynamic port has no transport, so its subscription contains the id of the port."""
    add_port(box, filter=None)
    port_id, transport_id = box.port().port_id, box.port().transport_id
    (subscription,) = list_subscriptions(box.connection)
    assert subscription.filter == f"BTS.SPID == '{port_id}'"
    agent = box.agent()
    [published] = agent.publish([Message.of(b"", promoted={BTS.SPID: str(port_id)})])
    assert published.subscribers == ("Anywhere",)
    with pytest.raises(PublishFailed):
        agent.publish([Message.of(b"", promoted={BTS.SPTransportID: str(transport_id)})])


@pytest.mark.usefixtures("host")
def test_a_dynamic_port_can_route_its_failures(box: Box, tmp_path: Path) -> None:
    """The error message contains the address."""
    errors = File("errors", name="%MessageID%").model_dump(mode="json")
    box.add_port("Errors", "ErrorReport.ErrorType == 'FailedMessage'", adapter=errors)
    add_port(box, route_failures=True)
    publish(box, "ftp://example.com/a", body=b"the original")
    wait_until(lambda: list((tmp_path / "errors").glob("[!.]*")), what="the error message")
    wait_until(lambda: are_queues_empty(box), what="empty queues")
    assert [path.read_bytes() for path in (tmp_path / "errors").iterdir()] == [b"the original"]
    assert box.count("suspended") == 0
    [context] = [one.context for one in box.messages() if ErrorReport.ErrorType in one.context]
    assert context[ErrorReport.FailureCode] == FAILURE_CODES["ADDRESS"]
    assert context[ErrorReport.OutboundTransportLocation] == "ftp://example.com/a"


def test_an_ordered_dynamic_port_has_one_order_for_all_addresses(box: Box, start_host: StartHost) -> None:
    """The address does not decide which messages wait for each other."""
    adapter = Dynamic().model_dump(mode="json")
    box.add_port("Anywhere", "exists(Region)", adapter=adapter, ordered=True)
    recorder = RecordingAdapter()
    for number in range(20):
        publish(box, f"file:out/{number % 3}/", body=b"%d" % number)
    start_host(recorder)
    wait_until(lambda: len(recorder.sent) == 20, what="all messages")
    assert recorder.bodies == [b"%d" % number for number in range(20)]
