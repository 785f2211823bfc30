"""What an orchestration can do, driven over the fake store of postroom.testing."""

from __future__ import annotations

import asyncio
import sys
import uuid
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal

import pytest

from postroom import Message, Property, orchestrations, testing
from postroom.errors import BadValue, DeliveryFailure, RoutingFailure, StateError
from postroom.orchestrations import Correlation, JournalLimits, JournalMismatch, Orchestration, StepFailed
from postroom.orchestrations.definition import OrchestrationFunction
from postroom.system_properties import BTS

OrderId = Property("Tests.OrderId", str)
Kind = Property("Tests.Kind", str)
Offers = Correlation(OrderId, filter=Kind == "offer")
Invoices = Correlation(OrderId, filter=Kind == "invoice")


def declare(function: OrchestrationFunction, *, version: int = 1, convoy: tuple[Property, ...] = ()) -> Orchestration:
    return Orchestration(
        name=function.__name__, version=version, function=function, activate=Kind == "order", convoy=convoy
    )


def message(kind: str, body: bytes = b"", order_id: str = "1") -> Message:
    return Message.of(body, promoted={OrderId: order_id, Kind: kind})


def bodies(run: testing.Run) -> list[bytes]:
    return [sent.message.data for sent in run.sent]


@pytest.fixture(params=[False, True], ids=["live", "replayed"])
def crashes(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


async def collect_offers(order: Message) -> None:
    offers = Offers.of(order)
    await orchestrations.send(Message.of(b"request"), to="Acme")
    received: list[Message] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            while len(received) < 2:
                received.append(await offers.receive())
    await orchestrations.send(Message.of(b", ".join(offer.data for offer in received)), to="Buyer")


def test_an_instance_collects_correlated_messages(crashes: bool) -> None:
    run = testing.start(declare(collect_offers), message("order"), crashes=crashes)
    assert [sent.port for sent in run.sent] == ["Acme"]
    assert run.waits == ["receive Tests.Kind, Tests.OrderId", "timer at 2026-01-01T00:01:00+00:00"]
    run.publish(message("offer", b"first"))
    run.publish(message("offer", b"second"))
    assert run.has_ended
    assert bodies(run) == [b"request", b"first, second"]


def test_a_timeout_ends_the_wait_for_messages(crashes: bool) -> None:
    run = testing.start(declare(collect_offers), message("order"), crashes=crashes)
    run.publish(message("offer", b"first"))
    run.advance(timedelta(seconds=59))
    assert not run.has_ended
    run.advance(timedelta(seconds=1))
    assert bodies(run) == [b"request", b"first"]


def test_a_message_that_no_receive_waits_for_stays_unconsumed(crashes: bool) -> None:
    async def receive_invoice_first(order: Message) -> None:
        offers, invoices = Offers.of(order), Invoices.of(order)
        for source in (invoices, offers):
            await orchestrations.send(await source.receive())

    run = testing.start(declare(receive_invoice_first), message("order"), crashes=crashes)
    run.publish(message("offer", b"offer"))
    assert [one.data for one in run.unreceived_messages] == [b"offer"]
    run.publish(message("invoice", b"invoice"))
    assert run.has_ended
    assert bodies(run) == [b"invoice", b"offer"]


def test_a_convoy_receives_the_messages_that_match_its_activation(crashes: bool) -> None:
    async def count_three(first: Message) -> None:
        rest = [await orchestrations.receive() for _ in range(2)]
        await orchestrations.send(Message.of(b"".join(one.data for one in [first, *rest])))

    run = testing.start(declare(count_three, convoy=(OrderId,)), message("order", b"a"), crashes=crashes)
    run.publish(message("order", b"b"))
    run.publish(message("order", b"c"))
    run.publish(message("order", b"d"))
    assert bodies(run) == [b"abc"]
    assert [one.data for one in run.unreceived_messages] == [b"d"]


def test_branches_run_in_parallel_and_the_first_one_can_win(crashes: bool) -> None:
    async def wait(seconds: float, text: bytes) -> bytes:
        await orchestrations.delay(seconds)
        await orchestrations.send(Message.of(text))
        return text

    async def race(order: Message) -> None:
        both = await asyncio.gather(wait(2, b"slow"), wait(1, b"fast"))
        await orchestrations.send(Message.of(b"/".join(both)))
        async with asyncio.TaskGroup() as group:
            group.create_task(wait(1, b"in a group"))

    run = testing.start(declare(race), message("order"), crashes=crashes)
    run.advance(timedelta(minutes=1))
    assert run.has_ended
    assert bodies(run) == [b"fast", b"slow", b"slow/fast", b"in a group"]


def test_a_step_runs_once_and_its_result_is_replayed(crashes: bool) -> None:
    calls: list[uuid.UUID] = []

    def charge(amount: Decimal) -> Decimal:
        calls.append(orchestrations.step_key())
        return amount * 2

    async def charge_async(amount: Decimal) -> Decimal:
        return charge(amount)

    async def pay(order: Message) -> None:
        first = await orchestrations.step(charge, Decimal("1.5"))
        await orchestrations.delay(5)
        second = await orchestrations.step(charge_async, first)
        await orchestrations.send(Message.of(str(second).encode()))

    run = testing.start(declare(pay), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=5))
    assert bodies(run) == [b"6.0"]
    assert len(calls) == 2
    assert calls[0] != calls[1]


def test_a_failed_step_is_tried_again_and_raises_in_the_end(crashes: bool) -> None:
    calls: list[int] = []

    def fail() -> None:
        calls.append(1)
        raise OSError("no connection")

    async def pay(order: Message) -> None:
        try:
            await orchestrations.step(fail, attempts=3, delay=10)
        except StepFailed as error:
            await orchestrations.send(Message.of(str(error.why).encode()))

    run = testing.start(declare(pay), message("order"), crashes=crashes)
    assert len(calls) == 1
    run.advance(timedelta(seconds=20))
    assert len(calls) == 3
    assert bodies(run) == [b"OSError: no connection"]


def test_a_step_that_takes_too_long_fails() -> None:
    async def wait_forever() -> None:
        await asyncio.sleep(3600)

    async def pay(order: Message) -> None:
        await orchestrations.step(wait_forever, timeout=0.05)

    run = testing.start(declare(pay), message("order"))
    assert "did not return within 0.05 seconds" in str(run.error)


def test_a_step_that_returns_something_else_than_data_fails() -> None:
    async def pay(order: Message) -> None:
        await orchestrations.step(object)

    run = testing.start(declare(pay), message("order"))
    assert "The journal cannot store a value of the type object." in str(run.error)


def test_time_random_numbers_and_ids_are_the_same_in_a_replay(crashes: bool) -> None:
    seen: list[tuple[object, ...]] = []

    async def look(order: Message) -> None:
        seen.append((orchestrations.now(), orchestrations.random().random(), orchestrations.new_id()))
        await orchestrations.delay(1)
        seen.append((orchestrations.now(), orchestrations.random().random(), orchestrations.new_id()))

    run = testing.start(declare(look), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=1))
    assert len({*seen}) == 2


def test_a_send_without_subscribers_raises_in_the_orchestration(crashes: bool) -> None:
    async def ask(order: Message) -> None:
        await orchestrations.send(Message.of(b"before"), to="Known")
        try:
            await orchestrations.send(Message.of(b"lost"), to="Unknown")
        except RoutingFailure:
            await orchestrations.send(Message.of(b"handled"), to="Known")
        await orchestrations.delay(1)
        await orchestrations.send(Message.of(b"after"), to="Known")

    run = testing.start(declare(ask), message("order"), subscribed={"Known"}, crashes=crashes)
    run.advance(timedelta(seconds=1))
    assert bodies(run) == [b"before", b"handled", b"after"]


def test_an_exception_suspends_the_instance_with_the_place_and_stores_nothing_of_the_turn() -> None:
    async def fail(order: Message) -> None:
        await orchestrations.delay(1)
        await orchestrations.send(Message.of(b"not sent"))
        raise KeyError("colour")

    run = testing.start(declare(fail), message("order"))
    run.advance(timedelta(seconds=1))
    assert run.sent == []
    assert len(run.journal) == 1
    assert run.error is not None
    assert run.error.startswith("Traceback")
    assert run.error.endswith("KeyError: 'colour'")
    assert "postroom/orchestrations" not in run.error


def test_compensations_run_in_reverse_order_also_those_of_inner_scopes(crashes: bool) -> None:
    async def undo(text: bytes) -> None:
        await orchestrations.send(Message.of(text))

    async def buy(order: Message) -> None:
        with suppress(ValueError):
            async with orchestrations.scope() as outer:
                outer.compensate_with(undo, b"outer")
                async with orchestrations.scope() as inner:
                    inner.compensate_with(undo, b"inner 1")
                    inner.compensate_with(undo, b"inner 2")
                await orchestrations.delay(1)
                raise ValueError
        async with orchestrations.scope() as fine:
            fine.compensate_with(undo, b"never")

    run = testing.start(declare(buy), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=1))
    assert run.has_ended
    assert bodies(run) == [b"inner 2", b"inner 1", b"outer"]


def test_an_atomic_function_sends_everything_or_nothing_and_can_be_retried(crashes: bool) -> None:
    async def transfer(attempts: list[int]) -> None:
        await orchestrations.send(Message.of(b"take"))
        attempts.append(1)
        if len(attempts) < 3:
            raise orchestrations.RetryTransaction
        await orchestrations.send(Message.of(b"give"))

    async def book(order: Message) -> None:
        await orchestrations.atomic(transfer, [])

    run = testing.start(declare(book), message("order"), crashes=crashes)
    assert run.sent == []
    run.advance(timedelta(seconds=4))
    assert bodies(run) == [b"take", b"give"]


@pytest.mark.parametrize(("ack_type", "result"), [(None, b"answer"), ("NACK", b"no route")])
def test_a_request_waits_for_its_own_response(crashes: bool, ack_type: str | None, result: bytes) -> None:
    async def ask(order: Message) -> None:
        try:
            response = await orchestrations.request(Message.of(b"question"), to="Partner")
            text = response.data
        except DeliveryFailure as error:
            text = error.why.encode()
        await orchestrations.send(Message.of(text), to="Buyer")

    run = testing.start(declare(ask), message("order"), crashes=crashes)
    caller = orchestrations.reply_port(run.sent[0].message)
    response = {} if ack_type is None else {BTS.AckType: ack_type, BTS.AckDescription: "no route"}
    other = {**caller.properties, BTS.EpmRRCorrelationToken: "other"}
    run.publish(Message.of(b"another", promoted={**response, **other}))
    assert not run.has_ended
    run.publish(Message.of(b"answer", promoted=response), to=caller)
    assert bodies(run) == [b"question", result]


def test_an_instance_continues_with_a_fresh_journal(crashes: bool) -> None:
    async def add_up(first: Message) -> None:
        total = orchestrations.carried_state() or 0
        offers = Offers.of(first)
        async with orchestrations.scope() as scope:
            scope.compensate_with(orchestrations.send, Message.of(b"never"))
            for _ in range(2):
                total += int((await offers.receive()).data)
            await orchestrations.send(Message.of(str(total).encode()))
            if total < 10:
                await orchestrations.continue_with(total)

    run = testing.start(declare(add_up), message("order"), crashes=crashes)
    for number in range(1, 5):
        run.publish(message("offer", str(number).encode()))
    assert run.has_ended
    assert bodies(run) == [b"3", b"10"]
    assert len({sent.message.message_id for sent in run.sent}) == 2
    assert len(run.journal) == 3


async def receive_offers(order: Message) -> None:
    offers = Offers.of(order)
    for _ in range(5):
        await orchestrations.send(Message.of((await offers.receive()).data))


def test_an_instance_whose_journal_is_full_is_suspended_and_finishes_with_higher_limits(crashes: bool) -> None:
    full = replace(declare(receive_offers), journal_limits=JournalLimits(events=3))
    run = testing.start(full, message("order"), crashes=crashes)
    for number in range(1, 4):
        run.publish(message("offer", b"%d" % number))
    assert bodies(run) == [b"1", b"2"]
    assert len(run.journal) == 3
    assert [one.data for one in run.unreceived_messages] == [b"3"]
    assert "3 events" in str(run.error)
    assert "continue_with" in str(run.error)
    testing.replay(replace(full, journal_limits=JournalLimits()), run.journal, run.messages)


def test_an_instance_that_only_waits_is_not_suspended_when_its_journal_is_full() -> None:
    full = replace(declare(receive_offers), journal_limits=JournalLimits(events=1))
    run = testing.start(full, message("order"))
    assert run.error is None
    run.publish(message("offer", b"1"))
    assert isinstance(run.error, str)


def test_large_results_of_steps_fill_the_journal_and_the_last_one_is_kept() -> None:
    async def read(order: Message) -> None:
        for _ in range(5):
            await orchestrations.step(lambda: "x" * 1_000)

    run = testing.start(replace(declare(read), journal_limits=JournalLimits(size=2_500)), message("order"))
    assert "characters" in str(run.error)
    assert [turn["event"]["kind"] for turn in run.journal] == ["started", "step", "step"]


def test_a_result_or_a_state_that_is_larger_than_the_journal_is_refused() -> None:
    async def read(order: Message) -> None:
        try:
            await orchestrations.step(lambda: "x" * 1_000)
        except StepFailed as error:
            await orchestrations.send(Message.of(error.why.encode()))
        try:
            await orchestrations.continue_with("x" * 1_000)
        except BadValue as error:
            await orchestrations.send(Message.of(error.what.encode()))

    run = testing.start(replace(declare(read), journal_limits=JournalLimits(size=900)), message("order"))
    assert bodies(run)[0].startswith(b"BadValue: The result has 1,002 characters, and the journal can have 900.")
    assert bodies(run)[1].startswith(b"The state has 1,002 characters")


def test_the_error_of_a_secret_step_is_neither_stored_nor_shown(crashes: bool) -> None:
    def log_in(attempt: int) -> str:
        if attempt == 1:
            raise PermissionError("the password 'hunter2' is wrong")
        return "token"

    async def read(order: Message) -> None:
        assert await orchestrations.step(log_in, 2, secret=True) == "token"
        await orchestrations.step(log_in, 1, secret=True)

    run = testing.start(declare(read), message("order"), crashes=crashes)
    assert "PermissionError" in str(run.error)
    assert "hunter2" not in f"{run.error} {run.journal}"


def test_the_journal_has_the_ids_of_sent_messages_and_the_times_of_timers() -> None:
    run = testing.start(declare(collect_offers), message("order"))
    _, sent, timer = run.journal[0]["commands"]
    assert sent["message"] == str(run.sent[0].message.message_id)
    assert timer["due"] == "2026-01-01T00:01:00+00:00"


def test_an_orchestration_can_call_another_one() -> None:
    async def ship(order: Message) -> None:
        await orchestrations.send(Message.of(b"shipped"))

    shipping = declare(ship)

    async def sell(order: Message) -> None:
        await shipping(order)
        await orchestrations.send(Message.of(b"sold"))

    assert bodies(testing.start(declare(sell), message("order"))) == [b"shipped", b"sold"]


def test_tasks_that_are_left_when_the_orchestration_returns_are_cancelled() -> None:
    async def clean_up() -> None:
        try:
            await orchestrations.delay(3600)
        finally:
            await orchestrations.send(Message.of(b"cancelled"))

    async def leave(order: Message) -> None:
        task = asyncio.create_task(clean_up())
        await asyncio.sleep(0)
        assert not task.done()

    run = testing.start(declare(leave), message("order"))
    assert run.has_ended
    assert bodies(run) == [b"cancelled"]


def test_a_message_that_a_cancelled_receive_has_got_goes_to_the_next_receive() -> None:
    async def change_mind(order: Message) -> None:
        offers = Offers.of(order)
        task = asyncio.create_task(offers.receive())
        other = asyncio.create_task(Invoices.of(order).receive())
        other.add_done_callback(lambda _: task.cancel())
        await asyncio.wait([other])
        with suppress(asyncio.CancelledError):
            await task
        await orchestrations.send(await offers.receive())

    run = testing.start(declare(change_mind), message("order"))
    run.publish(message("invoice"))
    run.publish(message("offer", b"offer"))
    assert bodies(run) == [b"offer"]


def test_an_exit_ends_the_instance_and_not_the_thread() -> None:
    async def leave(order: Message) -> None:
        sys.exit("enough")

    assert str(testing.start(declare(leave), message("order")).error).endswith("SystemExit: enough")


@pytest.mark.parametrize("timeout", [None, 60.0])
@pytest.mark.parametrize("error", [SystemExit("enough"), asyncio.CancelledError("enough")])
def test_an_exit_of_a_step_is_a_failure_of_the_step(error: BaseException, timeout: float | None) -> None:
    def leave() -> None:
        raise error

    async def run_step(order: Message) -> None:
        await orchestrations.step(leave, timeout=timeout)

    run = testing.start(declare(run_step), message("order"))
    assert "StepFailed" in str(run.error)
    assert f"{type(error).__name__}: enough" in str(run.error)


def test_a_message_that_is_published_twice_hides_no_other() -> None:
    async def receive_three(order: Message) -> None:
        offers = Offers.of(order)
        await asyncio.sleep(1)
        await orchestrations.send(Message.of(b" ".join([(await offers.receive()).data for _ in range(3)])), to="Out")

    run = testing.start(declare(receive_three), message("order"))
    first = message("offer", b"1")
    for offer in (first, first, message("offer", b"2")):
        run.publish(offer)
    run.advance(timedelta(seconds=1))
    assert bodies(run) == [b"1 1 2"]


def test_threads_are_refused_with_the_alternative() -> None:
    async def block(order: Message) -> None:
        await asyncio.to_thread(print)

    run = testing.start(declare(block), message("order"))
    assert "An orchestration cannot use threads." in str(run.error)


def test_a_correlation_set_needs_a_value_for_each_property() -> None:
    async def wait(order: Message) -> None:
        Offers.of(order)

    run = testing.start(declare(wait), Message.of(b"", promoted={Kind: "order"}))
    assert "The correlation set has no value for Tests.OrderId." in str(run.error)


def test_actions_outside_of_an_orchestration_raise() -> None:
    with pytest.raises(StateError, match="only inside an orchestration"):
        orchestrations.now()
    with pytest.raises(StateError, match="no step"):
        orchestrations.step_key()


def test_changed_code_is_found_with_its_place() -> None:
    async def procure(order: Message) -> None:
        await orchestrations.send(Message.of(b""), to="Acme")
        await orchestrations.delay(1)
        await orchestrations.send(Message.of(b""), to="Bolt")

    order = message("order")
    run = testing.start(declare(procure), order)
    run.advance(timedelta(seconds=1))
    testing.replay(declare(procure), run.journal, [order])

    async def ask_another(order: Message) -> None:
        await orchestrations.send(Message.of(b""), to="Acme")
        await orchestrations.delay(1)
        await orchestrations.send(Message.of(b""), to="Cobra")

    with pytest.raises(JournalMismatch) as raised:
        testing.replay(declare(ask_another, version=2), run.journal, [order])
    assert "ask_another, version 2, does not fit the journal at turn 2" in raised.value.what
    assert "The journal has 'send Bolt' (test_runtime.py:" in raised.value.why
    assert "but the code does 'send Cobra' (test_runtime.py:" in raised.value.why

    async def do_less(order: Message) -> None:
        await orchestrations.send(Message.of(b""), to="Acme")

    with pytest.raises(JournalMismatch, match="at turn 1") as raised:
        testing.replay(declare(do_less), run.journal, [order])
    assert "does nothing more" in raised.value.why

    async def do_more(order: Message) -> None:
        await procure(order)
        await orchestrations.send(Message.of(b""), to="Acme")

    with pytest.raises(JournalMismatch, match="at turn 2") as raised:
        testing.replay(declare(do_more), run.journal, [order])
    assert "which is not in the journal" in raised.value.why

    async def fail(order: Message) -> None:
        await orchestrations.send(Message.of(b""), to="Acme")
        asyncio.get_running_loop().call_later(1, print)
        raise KeyError

    with pytest.raises(JournalMismatch, match="at turn 1") as raised:
        testing.replay(declare(fail), run.journal, [order])
    assert "The code now fails" in raised.value.why


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 1, 1.5, "text", b"bytes", Decimal("1.50"), uuid.UUID(int=7), timedelta(days=1, microseconds=3)),
        *([1, [2]], {"a": {"b": Decimal(1)}}, (1, "two")),
    ],
)
def test_the_journal_stores_and_returns_values(value: object) -> None:
    async def keep(order: Message) -> None:
        result = await orchestrations.step(lambda: value)
        await orchestrations.delay(1)
        assert result == value
        assert type(result) is type(value)

    run = testing.start(declare(keep), message("order"), crashes=True)
    run.advance(timedelta(seconds=1))
    assert (run.has_ended, run.error) == (True, None)


def test_a_correlation_has_equalities_of_different_properties() -> None:
    with pytest.raises(Exception, match="cannot have the filter"):
        Correlation(OrderId, filter=Kind != "offer")
    with pytest.raises(Exception, match="each one once"):
        Correlation(OrderId, filter=OrderId == "1")
    with pytest.raises(Exception, match="one property at least"):
        Correlation()
    assert issubclass(BadValue, Exception)


def test_an_atomic_function_with_an_unroutable_send_sends_nothing(crashes: bool) -> None:
    async def ask_both() -> None:
        await orchestrations.send(Message.of(b"1"), to="Acme")
        await orchestrations.atomic(ask_nobody)
        await orchestrations.step(lambda: None)

    async def ask_nobody() -> None:
        await orchestrations.send(Message.of(b"2"), to="Nobody")

    async def procure(order: Message) -> None:
        try:
            await orchestrations.atomic(ask_both)
        except RoutingFailure:
            await orchestrations.send(Message.of(b"3"), to="Acme")

    run = testing.start(declare(procure), message("order"), subscribed=["Acme"], crashes=crashes)
    assert (bodies(run), run.has_ended, run.error) == ([b"3"], True, None)
