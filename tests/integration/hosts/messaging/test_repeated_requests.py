"""Requests that are repeated with their idempotency key, also at another host instance (RR-01 … 12)."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from postroom import pipelines, two_way
from postroom.adapters import Attempt
from postroom.errors import DeliveryFailure, KeyReused, MessageBoxUnavailable
from postroom.message import Message
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.operations.ports import send_ports
from postroom.two_way.callers import MissingResponse, RequestPublisher
from tests.support.box import Box
from tests.support.quotes import Quotes, declare_dead, end_sessions, get_holders, read, read_reason
from tests.support.two_way import AnsweringAdapter
from tests.support.waiting import wait_until


def test_a_repeated_key_joins_the_waiting_call_and_later_gets_the_stored_response(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    first = quotes.ask(key=key)
    assert quotes.ask(key=key) is first
    with pytest.raises(KeyReused):
        quotes.ask(key=key, digest=b"other")
    send_ports.start(box.connection, "Pricing")
    assert read(first) == b"5"
    assert read(quotes.ask(key=key)) == b"5"
    with pytest.raises(KeyReused):
        quotes.ask(key=key, digest=b"other")
    assert len(adapter.sent) == 1


def test_a_caller_that_waits_again_still_waits_for_each_of_its_connections(quotes: Quotes) -> None:
    callers = quotes.start(state="stopped").callers
    caller = callers.add(quotes.ask())
    taken = callers.take(caller.instance_id)
    assert taken is caller
    callers.put_back(caller)
    callers.cancel(caller)
    assert callers.is_waiting(caller)
    assert quotes.count_waiting() == 1
    callers.cancel(caller)
    assert not callers.is_waiting(caller)
    wait_until(lambda: quotes.count_waiting() == 0)


def test_a_caller_that_was_cancelled_while_it_was_taken_does_not_wait_again(quotes: Quotes) -> None:
    callers = quotes.start(state="stopped").callers
    caller = quotes.ask()
    assert callers.take(caller.instance_id) is caller
    callers.cancel(caller)
    callers.put_back(caller)
    assert not callers.is_waiting(caller)
    wait_until(lambda: quotes.count_waiting() == 0)


def test_a_repeated_key_at_another_host_instance_joins_the_waiting_call(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    other = quotes.start_host(adapter)
    key = uuid.uuid4()
    first = quotes.ask(key=key)
    joined = quotes.ask(key=key, at=1)
    assert quotes.ask(key=key, at=1) is joined
    with pytest.raises(KeyReused):
        quotes.ask(key=key, digest=b"other", at=1)
    send_ports.start(box.connection, "Pricing")
    assert (read(first), read(joined)) == (b"5", b"5")
    assert read(quotes.ask(key=key, at=1)) == b"5"
    assert len(adapter.sent) == 1
    assert len(other.callers) == 0


def test_a_call_that_has_joined_another_host_instance_fails_when_the_first_one_waits_no_longer(
    quotes: Quotes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(two_way.callers, "LATE_RESPONSE_SECONDS", 0.0)
    quotes.start(state="stopped")
    quotes.start_host()
    key = uuid.uuid4()
    first = quotes.ask(key=key, timeout=0.2)
    joined = quotes.ask(key=key, at=1)
    assert read_reason(first) is MissingResponse.EXPIRED
    assert read_reason(joined) is MissingResponse.LOST


def test_a_call_that_has_joined_another_host_instance_ends_after_its_own_time(quotes: Quotes) -> None:
    quotes.start(state="stopped")
    quotes.start_host()
    key = uuid.uuid4()
    first = quotes.ask(key=key)
    assert read_reason(quotes.ask(key=key, timeout=0.05, at=1)) is MissingResponse.EXPIRED
    assert quotes.count_waiting() == 1
    assert not first.future.done()


def test_a_client_that_has_disconnected_gets_the_response_when_it_repeats_its_key(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    first = quotes.ask(key=key)
    instance.callers.cancel(first)
    assert quotes.ask(key=key) is first
    instance.callers.cancel(first)
    send_ports.start(box.connection, "Pricing")
    assert read(first) == b"5"
    assert read(quotes.ask(key=key)) == b"5"
    assert len(adapter.sent) == 1


@pytest.mark.parametrize("is_repeated", [False, True], ids=["stored", "awaited"])
def test_a_repeated_key_gets_the_response_that_came_after_the_timeout(
    box: Box, quotes: Quotes, is_repeated: bool
) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    for _ in range(2):
        assert read_reason(quotes.ask(key=key, timeout=0.05)) is MissingResponse.EXPIRED
    repeated = quotes.ask(key=key) if is_repeated else None
    assert (quotes.count_waiting(), len(instance.callers)) == (1, 1)
    send_ports.start(box.connection, "Pricing")
    if repeated is not None:
        assert read(repeated) == b"5"
    wait_until(lambda: len(instance.callers) == 0, what="the late response")
    assert read(quotes.ask(key=key)) == b"5"
    assert (len(adapter.sent), box.suspended()) == (1, [])
    wait_until(lambda: quotes.count_waiting() == 0)


@pytest.mark.parametrize("is_published", [False, True], ids=["lost", "published"])
def test_a_repeated_key_gets_the_response_after_the_connection_was_lost_during_the_first_publish(
    box: Box, quotes: Quotes, monkeypatch: pytest.MonkeyPatch, is_published: bool
) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    publish = RequestPublisher._publish

    def lose_connection(publisher: RequestPublisher, *arguments: Any) -> bool:
        if is_published:
            publish(publisher, *arguments)
        raise MessageBoxUnavailable("The connection was lost.")

    with monkeypatch.context() as patch:
        patch.setattr(RequestPublisher, "_publish", lose_connection)
        with pytest.raises(MessageBoxUnavailable):
            quotes.ask(key=key)
    repeated = quotes.ask(key=key)
    assert (quotes.count_waiting(), len(instance.callers)) == (1, 1)
    send_ports.start(box.connection, "Pricing")
    assert read(repeated) == b"5"
    assert (len(adapter.sent), box.suspended()) == (1, [])


def test_a_repeated_key_gets_the_late_response_at_another_host_instance(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    quotes.start_host(adapter)
    key = uuid.uuid4()
    assert read_reason(quotes.ask(key=key, timeout=0.05)) is MissingResponse.EXPIRED
    repeated = quotes.ask(key=key, at=1)
    send_ports.start(box.connection, "Pricing")
    assert read(repeated) == b"5"
    assert (len(adapter.sent), box.suspended()) == (1, [])


def test_a_repeated_key_that_has_taken_over_a_request_waits_for_its_late_response(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    first_instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    quotes.ask(key=key)
    first_instance.stop()
    instance = quotes.start_host(adapter)
    repeated = quotes.ask(key=key, at=1)
    wait_until(lambda: get_holders(box) == [repeated.instance_id], what="the new holder")
    repeated.deadline = 0.0
    assert read_reason(repeated) is MissingResponse.EXPIRED
    send_ports.start(box.connection, "Pricing")
    wait_until(lambda: len(instance.callers) == 0, what="the late response")
    assert read(quotes.ask(key=key, at=1)) == b"5"
    assert box.suspended() == []


def test_a_repeated_key_whose_response_was_lost_fails(quotes: Quotes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(two_way.callers, "LATE_RESPONSE_SECONDS", 0.0)
    quotes.start(state="stopped")
    key = uuid.uuid4()
    assert read_reason(quotes.ask(key=key, timeout=0.05)) is MissingResponse.EXPIRED
    wait_until(lambda: quotes.count_waiting() == 0)
    assert read_reason(quotes.ask(key=key)) is MissingResponse.LOST


def test_a_large_response_is_stored_for_a_repeated_key(quotes: Quotes) -> None:
    answer = bytes(range(256)) * 10_000
    adapter = AnsweringAdapter(lambda body: answer)
    quotes.start(adapter, pipelines.PassThrough())
    key = uuid.uuid4()
    assert read(quotes.ask(key=key)) == answer
    assert read(quotes.ask(key=key)) == answer
    assert len(adapter.sent) == 1


def test_an_empty_response_is_stored_for_a_repeated_key(quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"")
    quotes.start(adapter, pipelines.PassThrough())
    key = uuid.uuid4()
    assert read(quotes.ask(key=key)) == b""
    assert read(quotes.ask(key=key)) == b""
    assert len(adapter.sent) == 1


def test_a_repeated_key_whose_first_request_could_not_be_answered_gets_the_same_answer(quotes: Quotes) -> None:
    def fail(message: Message, attempt: Attempt) -> None:
        raise DeliveryFailure("The receiver is down.")

    adapter = AnsweringAdapter()
    adapter.behave = fail
    quotes.start(adapter, retry_count=0)
    key = uuid.uuid4()
    assert read_reason(quotes.ask(key=key)) is MissingResponse.REFUSED
    assert read_reason(quotes.ask(key=key)) is MissingResponse.REFUSED


def test_a_repeated_key_takes_over_from_a_host_instance_that_has_stopped(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    first_instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    first = quotes.ask(key=key)
    first_instance.stop()
    assert read_reason(first) is MissingResponse.STOPPING
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    assert quotes.count_waiting() == 1
    quotes.start_host(adapter)
    repeated = quotes.ask(key=key, at=1)
    wait_until(lambda: get_holders(box) == [repeated.instance_id], what="the new holder")
    assert quotes.count_waiting() == 1
    send_ports.start(box.connection, "Pricing")
    assert read(repeated) == b"5"
    assert len(adapter.sent) == 1
    wait_until(lambda: box.count("instances") == 0)
    assert quotes.count_waiting() == 0
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []
    assert box.count("messages") == 0


def test_a_repeated_key_gets_the_response_that_came_after_the_death_of_its_host_instance(
    box: Box, quotes: Quotes
) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    first_instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    quotes.ask(key=key)
    first_instance.stop()
    quotes.start_host(adapter)
    send_ports.start(box.connection, "Pricing")
    wait_until(lambda: len(adapter.sent) == 1, what="the request")
    wait_until(lambda: box.count("responses to callers") == 1, what="the response")
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    assert box.suspended() == []
    assert read(quotes.ask(key=key, at=1)) == b"5"
    assert len(adapter.sent) == 1
    assert check(box.connection) == []


def test_a_request_with_a_key_stops_waiting_for_a_repeat_when_its_time_is_over(box: Box, quotes: Quotes) -> None:
    """RR-06."""
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    quotes.ask(key=uuid.uuid4())
    instance.stop()
    box.one("SELECT dead_processes_cleanup('0 seconds', now() + interval '1 day')")
    assert quotes.count_waiting() == 0
    quotes.start_host(adapter)
    send_ports.start(box.connection, "Pricing")
    wait_until(lambda: box.suspended() == [("CORRELATION", False)])


def test_a_call_with_a_key_keeps_waiting_when_its_host_instance_was_declared_dead(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    first = quotes.ask(key=uuid.uuid4())
    declare_dead(box)
    wait_until(lambda: instance.registration.regained_locks == 1)
    send_ports.start(box.connection, "Pricing")
    assert read(first) == b"5"
    wait_until(lambda: quotes.count_waiting() == 0)


def test_a_call_whose_host_instance_was_declared_dead_waits_for_its_late_response(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = quotes.start(adapter, pipelines.PassThrough())
    stored, key = uuid.uuid4(), uuid.uuid4()
    assert read(quotes.ask(key=stored)) == b"5"
    send_ports.stop(box.connection, "Pricing")
    first = quotes.ask(key=key)
    declare_dead(box)
    wait_until(lambda: instance.registration.regained_locks == 1)
    # The loop that answers this one has looked at the subscription of the first one, too.
    assert read(quotes.ask(key=stored)) == b"5"
    first.deadline = 0.0
    assert read_reason(first) is MissingResponse.EXPIRED
    send_ports.start(box.connection, "Pricing")
    wait_until(lambda: len(instance.callers) == 0, what="the late response")
    assert read(quotes.ask(key=key)) == b"5"
    assert box.suspended() == []


def test_a_call_whose_host_instance_was_declared_dead_gets_the_response_of_the_one_that_took_over(
    box: Box, quotes: Quotes
) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    quotes.start_host(adapter)
    key = uuid.uuid4()
    first = quotes.ask(key=key)
    repeated = quotes.ask(key=key, at=1)
    box.delete_host_instance(instance.host_instance)
    wait_until(lambda: get_holders(box) == [repeated.instance_id], what="the new holder")
    end_sessions(box)
    wait_until(lambda: instance.registration.regained_locks == 1)
    send_ports.start(box.connection, "Pricing")
    assert (read(first), read(repeated)) == (b"5", b"5")
    assert len(adapter.sent) == 1
