"""Atomic functions of orchestrations: all of their sends take effect, or none (ORC-36, 40, 41)."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta

from postroom import Message, orchestrations, testing
from postroom.errors import RoutingFailure
from tests.support.offers import Offers, bodies, declare, message


def test_an_atomic_function_sends_everything_or_nothing_and_can_be_retried(crashes: bool) -> None:
    """ORC-36, 40, 41: it also waits for two seconds."""

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


def test_an_atomic_function_that_never_succeeds_suspends_the_instance_and_starts_again_when_it_is_resumed(
    crashes: bool,
) -> None:
    """ORC-41: it was repeated 21 times, every two seconds."""

    async def transfer(attempts: list[datetime]) -> None:
        await orchestrations.send(Message.of(b"take"))
        attempts.append(orchestrations.now())
        if len(attempts) < 24:
            raise orchestrations.RetryTransaction

    async def book(order: Message) -> None:
        attempts: list[datetime] = []
        await orchestrations.atomic(transfer, attempts)
        await orchestrations.send(Message.of(b"%d" % (attempts[21] - attempts[0]).seconds))

    run = testing.start(declare(book), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=41))
    assert run.suspension is None
    run.advance(timedelta(hours=1))
    assert run.suspension is not None
    assert "transfer was repeated 21 times and has not succeeded" in run.suspension
    assert run.sent == []
    run.resume()
    assert (run.suspension, run.sent) == (None, [])
    run.advance(timedelta(seconds=2))
    assert (bodies(run), run.has_ended) == ([b"take", b"42"], True)


def test_an_atomic_function_that_raises_another_exception_runs_once(crashes: bool) -> None:
    """ORC-40, 41: the exception is raised in the orchestration, and nothing is sent."""

    async def fail(attempts: list[int]) -> None:
        await orchestrations.send(Message.of(b"not sent"))
        attempts.append(1)
        raise ValueError

    async def book(order: Message) -> None:
        attempts: list[int] = []
        with suppress(ValueError):
            await orchestrations.atomic(fail, attempts)
        await orchestrations.send(Message.of(b"%d" % len(attempts)))

    run = testing.start(declare(book), message("order"), crashes=crashes)
    assert (bodies(run), run.has_ended) == ([b"1"], True)


def test_an_atomic_function_receives_and_its_wait_has_a_timeout(crashes: bool) -> None:
    """ORC-36, 40, 42: what it has sent before the timeout is not sent."""

    async def ask(offers: orchestrations.CorrelationSet, text: bytes) -> bytes:
        await orchestrations.send(Message.of(text))
        async with asyncio.timeout(60):
            return (await offers.receive()).data

    async def book(order: Message) -> None:
        offers = Offers.of(order)
        with suppress(TimeoutError):
            await orchestrations.atomic(ask, offers, b"first")
        await orchestrations.send(Message.of(await orchestrations.atomic(ask, offers, b"second")))

    run = testing.start(declare(book), message("order"), crashes=crashes)
    run.advance(timedelta(minutes=1))
    assert run.sent == []
    run.publish(message("offer", b"offer"))
    assert (bodies(run), run.has_ended) == ([b"second", b"offer"], True)


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
