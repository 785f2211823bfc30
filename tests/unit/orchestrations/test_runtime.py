"""What an orchestration can do, driven over the fake store of postroom.testing."""

from __future__ import annotations

import asyncio
import sys
import uuid
import weakref
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from postroom import Message, orchestrations, testing
from postroom.errors import BadValue, DeliveryFailure, RoutingFailure, StateError
from postroom.orchestrations import Correlation, JournalMismatch
from postroom.orchestrations.execution import Execution
from postroom.orchestrations.journal import Started
from postroom.system_properties import BTS
from tests.support.offers import Invoices, Kind, Offers, OrderId, bodies, collect_offers, declare, message


def test_an_instance_collects_correlated_messages(crashes: bool) -> None:
    run = testing.start(declare(collect_offers), message("order"), crashes=crashes)
    assert [sent.port for sent in run.sent] == ["Acme"]
    assert run.waits == ["receive Tests.Kind, Tests.OrderId", "timer at 2026-01-01T00:01:00+00:00"]
    run.publish(message("offer", b"first"))
    run.publish(message("offer", b"second"))
    assert run.has_ended
    assert bodies(run) == [b"request", b"first, second"]


def test_a_timeout_ends_the_wait_for_messages(crashes: bool) -> None:
    """ORC-42: the orchestration handles it."""
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
    """ORC-44: nothing handles it."""

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
    """ORC-43: each runs once."""

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


def test_an_exception_that_is_not_handled_discards_compensations_and_says_so() -> None:
    """ORC-44: the instance can be resumed from its last persistence point."""

    async def book(order: Message) -> None:
        async with orchestrations.scope() as trip:
            trip.compensate_with(orchestrations.send, Message.of(b"cancel"))
            await orchestrations.delay(1)
            raise ValueError("no room")

    run = testing.start(declare(book), message("order"))
    run.advance(timedelta(seconds=1))
    assert bodies(run) == []
    assert run.error is not None
    assert "\nValueError: no room\nThe compensations were not stored and have sent nothing" in run.error


async def book_and_deliver(order: Message) -> None:
    async with orchestrations.scope() as trip:
        trip.compensate_with(orchestrations.deliver, Message.of(b"cancel"), to="Hotel")
        await orchestrations.delay(1)
        raise ValueError("no room")


def test_compensations_that_wait_are_stored_and_the_exception_can_be_handled_later() -> None:
    run = testing.start(declare(book_and_deliver), message("order"))
    run.advance(timedelta(seconds=1))
    journal = run.save_journal()
    assert bodies(run) == [b"cancel"]
    assert {command["place"].split(", ")[1] for command in journal.turns[1]["commands"]} == {"compensation"}
    run.acknowledge(run.sent[0])
    assert run.error is not None
    assert "\nCompensations have run and are stored, so the instance cannot continue inside the scope" in run.error

    async def handle(order: Message) -> None:
        with suppress(ValueError):
            await book_and_deliver(order)

    testing.replay(declare(handle), journal)

    async def book_without_failure(order: Message) -> None:
        await orchestrations.delay(1)

    with pytest.raises(JournalMismatch) as raised:
        testing.replay(declare(book_without_failure), journal)
    assert raised.value.why.startswith("A scope has failed and was compensated, so its body has to fail again")


def test_the_place_of_a_task_of_a_compensation_is_marked_once() -> None:
    async def wait_twice() -> None:
        await asyncio.gather(orchestrations.delay(1), orchestrations.delay(2))

    async def book(order: Message) -> None:
        async with orchestrations.scope() as trip:
            trip.compensate_with(wait_twice)
            raise ValueError("no room")

    journal = testing.start(declare(book), message("order")).save_journal()
    places = [command["place"] for command in journal.turns[0]["commands"]]
    assert [place.split(", ")[1:] for place in places] == [["compensation"], ["compensation"]]


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


def test_an_orchestration_can_call_another_one() -> None:
    """ORC-52, ORS-05: it runs inside the instance of the caller, and is not enlisted."""

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


def test_a_send_promotes_nothing_of_a_correlation() -> None:
    """ORC-05: the author promotes what the message needs."""
    run = testing.start(declare(collect_offers), message("order"))
    assert dict(run.sent[0].message.context.promoted) == {}


def test_a_correlation_set_can_be_passed_to_a_function(crashes: bool) -> None:
    """ORC-06: the function receives as the instance that has initialised the set."""

    async def read_offer(offers: orchestrations.CorrelationSet) -> bytes:
        return (await offers.receive()).data

    async def buy(order: Message) -> None:
        offers = Offers.of(order)
        await orchestrations.send(Message.of(await read_offer(offers)))

    run = testing.start(declare(buy), message("order"), crashes=crashes)
    run.publish(message("offer", b"9"))
    assert bodies(run) == [b"9"]


def test_scopes_are_nested_without_a_limit() -> None:
    """ORC-46"""

    async def nest(depth: int) -> None:
        async with orchestrations.scope() as scope:
            scope.compensate_with(orchestrations.send, Message.of(b"%d" % depth))
            if depth == 30:
                raise ValueError
            await nest(depth + 1)

    async def fail(order: Message) -> None:
        with suppress(ValueError):
            await nest(1)

    run = testing.start(declare(fail), message("order"))
    assert bodies(run) == [b"%d" % depth for depth in range(30, 0, -1)]


def test_a_delay_lasts_for_a_time_or_until_a_point_in_time(crashes: bool) -> None:
    """ORC-51: a point in the past is now."""

    async def wait(order: Message) -> None:
        started = orchestrations.now()
        for until in (60, timedelta(minutes=1), started + timedelta(minutes=3), started):
            await orchestrations.delay(until)
        await orchestrations.send(Message.of(str(orchestrations.now() - started).encode()))

    run = testing.start(declare(wait), message("order"), crashes=crashes)
    run.advance(timedelta(minutes=4))
    assert bodies(run) == [b"0:03:00"]


def test_a_correlation_set_needs_a_value_for_each_property() -> None:
    """ORC-04: a message must have all of them."""

    async def wait(order: Message) -> None:
        Offers.of(order)

    run = testing.start(declare(wait), Message.of(b"", promoted={Kind: "order"}))
    assert "The correlation set has no value for Tests.OrderId." in str(run.error)


def test_actions_outside_of_an_orchestration_raise() -> None:
    with pytest.raises(StateError, match="only inside an orchestration"):
        orchestrations.now()
    with pytest.raises(StateError, match="no step"):
        orchestrations.step_key()


def test_a_correlation_has_equalities_of_different_properties() -> None:
    """FLT-07."""
    with pytest.raises(Exception, match="cannot have the filter"):
        Correlation(OrderId, filter=Kind != "offer")
    with pytest.raises(Exception, match="each one once"):
        Correlation(OrderId, filter=OrderId == "1")
    with pytest.raises(Exception, match="one property at least"):
        Correlation()
    assert issubclass(BadValue, Exception)


def test_a_closed_instance_is_freed_without_the_garbage_collector() -> None:
    async def echo(order: Message) -> None:
        await orchestrations.send(order)

    execution = Execution(declare(echo), uuid.uuid4())
    execution.handle(Started(time=datetime.now(UTC), message=message("order")))
    assert execution.has_ended
    execution.close()
    freed = weakref.ref(execution)
    del execution
    assert freed() is None


def test_an_orchestration_cannot_promote_what_only_the_engine_promotes(crashes: bool) -> None:
    """PUB-13."""

    async def forge(order: Message) -> None:
        await orchestrations.send(Message.of(b"x", promoted={BTS.SPName: "Forged"}), to="Buyer")

    run = testing.start(declare(forge), message("order"), crashes=crashes)
    assert run.sent == []
    assert run.error is not None
    assert "The message promotes BTS.SPName, which only the engine promotes." in run.error


def test_an_orchestration_sends_on_what_it_received(crashes: bool) -> None:
    async def send_on(order: Message) -> None:
        for one in (order, await Offers.of(order).receive()):
            await orchestrations.deliver(one, to="Buyer")

    order = message("order")
    order = replace(order, context=order.context.promote(BTS.ReceivePortName, "OrdersIn"))
    response = message("offer")
    response = replace(response, context=response.context.promote(BTS.SPName, "Pricing"))
    run = testing.start(declare(send_on), order, crashes=crashes)
    run.publish(response)
    run.acknowledge(run.sent[0])
    run.acknowledge(run.sent[1])
    assert (run.error, run.has_ended) == (None, True)
    assert run.sent[1].message.context[BTS.SPName] == "Pricing"
