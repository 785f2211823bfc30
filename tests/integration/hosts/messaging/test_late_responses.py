"""Late responses to requests with an idempotency key, after a restart of the host (RR-05, RR-06)."""

from __future__ import annotations

import uuid

import pytest

from postroom import pipelines
from postroom.operations.ports import send_ports
from postroom.two_way.callers import MissingResponse
from tests.support.box import Box
from tests.support.quotes import Quotes, get_holders, read, read_reason
from tests.support.two_way import AnsweringAdapter
from tests.support.waiting import wait_until


@pytest.fixture
def expired(box: Box, quotes: Quotes) -> uuid.UUID:
    """Let the time of a request pass, and restart the host. Return the key of the request."""
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    assert read_reason(quotes.ask(key=key, timeout=0.05)) is MissingResponse.EXPIRED
    instance.stop()
    quotes.start_host(adapter)
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    return key


def test_a_repeated_request_waits_for_the_late_response(box: Box, quotes: Quotes, expired: uuid.UUID) -> None:
    repeated = quotes.ask(key=expired, at=1)
    wait_until(lambda: repeated.future.done() or get_holders(box) == [repeated.instance_id])
    send_ports.start(box.connection, "Pricing")
    assert read(repeated) == b"5"
    assert read(quotes.ask(key=expired, at=1)) == b"5"


def test_a_response_that_came_before_the_repeated_request_is_delivered_to_it(
    box: Box, quotes: Quotes, expired: uuid.UUID
) -> None:
    send_ports.start(box.connection, "Pricing")
    wait_until(lambda: box.suspended() or box.count("responses to callers") == 1)
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    assert read(quotes.ask(key=expired, at=1)) == b"5"


def test_a_request_that_was_taken_over_waits_for_a_late_response_after_another_restart(
    box: Box, quotes: Quotes, expired: uuid.UUID
) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    second = quotes.start_host(adapter)
    repeated = quotes.ask(key=expired, at=2)
    wait_until(lambda: get_holders(box) == [repeated.instance_id], what="the new holder")
    repeated.deadline = 0.0
    assert read_reason(repeated) is MissingResponse.EXPIRED
    second.stop()
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    send_ports.start(box.connection, "Pricing")
    assert read(quotes.ask(key=expired, at=1)) == b"5"


def test_a_request_waits_no_longer_when_the_hour_is_over(box: Box, quotes: Quotes, expired: uuid.UUID) -> None:
    box.one("SELECT dead_processes_cleanup('0 seconds', now() + interval '2 hours')")
    assert quotes.count_waiting() == 0
    assert read_reason(quotes.ask(key=expired, at=1)) is MissingResponse.LOST
