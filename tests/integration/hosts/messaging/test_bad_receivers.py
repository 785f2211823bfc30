"""Receivers that hang, answer garbage, close half-way or fail for a while: a clear error, nothing lost or stuck."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from postroom import BackupTransport, Client, NoResponse, Retry, adapters
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from tests.integration.hosts.conftest import SETTINGS
from tests.support import changes
from tests.support.box import Box, Region
from tests.support.http_receiver import Handler, http_receiver
from tests.support.two_way import make_two_way
from tests.support.waiting import PATIENCE, wait_until


def hang(handler: Handler) -> None:
    handler.hang()


def close_half_way(handler: Handler) -> None:
    handler.close_after(100)


def answer_garbage(handler: Handler) -> None:
    handler.take()
    handler.wfile.write(b"\x00\x01 this is not HTTP\r\n\r\n")
    handler.close_connection = True


def answer_half_way(handler: Handler) -> None:
    """Announce a longer response than is sent."""
    handler.take()
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[1,")
    handler.close_connection = True


def publish(box: Box, count: int) -> None:
    body = b"x" * 10_000
    box.agent().publish([Message.of(body, promoted={Region: "EU"}) for _ in range(count)])


@pytest.mark.parametrize(
    ("behave", "timeout", "text"),
    [
        (hang, 0.5, "Read timed out"),
        (close_half_way, PATIENCE, "closed connection"),
        (answer_garbage, PATIENCE, "this is not HTTP"),
    ],
    ids=["hangs", "closes half-way", "answers garbage"],
)
def test_a_message_is_suspended_with_the_reason_and_can_be_resumed(
    box: Box, tmp_path: Path, behave: Callable[[Handler], None], timeout: float, text: str
) -> None:
    with http_receiver() as server:
        server.behave = behave
        definition = adapters.Http(server.url, timeout=timeout).model_dump(mode="json")
        box.add_port("Europe", "Orders.Region == 'EU'", adapter=definition, retry_count=1, retry_seconds=0)
        with HostInstance(box.url, "Default", tmp_path, as_role=True, settings=SETTINGS) as instance:
            publish(box, 3)
            wait_until(lambda: instance.counts["suspended"] == 3)
            for suspended in list_instances(box.connection, InstanceQuery()):
                assert (suspended.error_code, suspended.attempt, suspended.uri) == ("DELIVERY", 2, "null://")
                assert text in (suspended.error_description or "")
            server.behave = Handler.accept

            def are_completed() -> bool:
                """Resume again. On a slow machine the answer may take longer than the timeout."""
                if box.suspended():
                    changes.resume_all(box.connection, InstanceQuery())
                return instance.counts["completed"] == 3

            wait_until(are_completed)
        assert len({request.headers["Idempotency-Key"] for request in server.accepted}) == 3
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []


def test_the_backup_transport_delivers_while_the_receiver_hangs(box: Box, tmp_path: Path) -> None:
    with http_receiver() as server:
        server.behave = hang
        definition = adapters.Http(server.url, timeout=0.5).model_dump(mode="json")
        backup = BackupTransport(adapters.File("late"), retry=Retry(count=0))
        box.add_port("Europe", "Orders.Region == 'EU'", adapter=definition, retry_count=0, backup=backup)
        with HostInstance(box.url, "Default", tmp_path, as_role=True, settings=SETTINGS) as instance:
            publish(box, 10)
            wait_until(lambda: instance.counts["completed"] == 10)
        assert {path.stat().st_size for path in (tmp_path / "late").iterdir()} == {10_000}
        assert len(list((tmp_path / "late").iterdir())) == 10


@pytest.mark.parametrize(
    ("behave", "timeout", "text"),
    [
        (hang, 0.5, "Read timed out"),
        (close_half_way, PATIENCE, "closed connection"),
        (answer_garbage, PATIENCE, "this is not HTTP"),
        (answer_half_way, PATIENCE, "IncompleteRead"),
    ],
    ids=["hangs", "closes half-way", "answers garbage", "answers half-way"],
)
def test_the_caller_of_a_two_way_port_gets_an_error(
    box: Box, tmp_path: Path, behave: Callable[[Handler], None], timeout: float, text: str
) -> None:
    with http_receiver() as server, Client(box.url) as client:
        server.behave = behave
        definition = adapters.Http(server.url, timeout=timeout).model_dump(mode="json")
        box.add_port("Pricing", "Orders.Region == 'EU'", adapter=definition, retry_count=1, retry_seconds=0)
        make_two_way(box, "Pricing")
        with HostInstance(box.url, "Default", tmp_path, as_role=True, settings=SETTINGS):
            with pytest.raises(NoResponse, match=text):
                client.request(b"x" * 10_000, promoted={Region: "EU"}, timeout=PATIENCE)
            assert box.suspended() == [("DELIVERY", True)]
    assert check(box.connection) == []


def test_the_caller_of_a_two_way_port_gets_its_response_when_the_receiver_has_recovered(
    box: Box, tmp_path: Path
) -> None:
    with http_receiver() as server, Client(box.url) as client:
        server.fail(times=2, status=500)
        definition = adapters.Http(server.url).model_dump(mode="json")
        box.add_port("Pricing", "Orders.Region == 'EU'", adapter=definition, retry_count=3, retry_seconds=0)
        make_two_way(box, "Pricing")
        with HostInstance(box.url, "Default", tmp_path, as_role=True, settings=SETTINGS):
            assert client.request(b"price?", promoted={Region: "EU"}, timeout=PATIENCE).data == b"thanks"
        assert len(server.requests) == 3
    assert box.suspended() == []
