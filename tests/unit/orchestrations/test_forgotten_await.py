"""A call without ``await`` does nothing, so it is an error and not a message that is missing."""

from __future__ import annotations

import asyncio
import gc
from datetime import timedelta

import pytest

from postroom import Message, orchestrations, testing
from postroom.orchestrations import NotAwaited
from tests.support.offers import Offers, bodies, declare, message


def test_a_send_without_await_raises_in_a_test() -> None:
    async def forget(order: Message) -> None:
        orchestrations.send(Message.of(b"lost"))  # type: ignore[unused-coroutine]

    with pytest.raises(NotAwaited, match=r"send\(\) was called in test_forgotten_await.py:\d+ and never awaited"):
        testing.start(declare(forget), message("order"))


def test_a_coroutine_of_the_application_without_await_raises_in_a_test() -> None:
    async def notify() -> None:
        await orchestrations.send(Message.of(b"lost"))

    async def forget(order: Message) -> None:
        await orchestrations.delay(5)
        notification = notify()
        await orchestrations.send(Message.of(b"sent"))
        del notification

    run = testing.start(declare(forget), message("order"))
    with pytest.raises(NotAwaited, match=r"notify\(\) was called"):
        run.advance(timedelta(seconds=5))
    assert (run.has_ended, bodies(run)) == (False, [])


def test_a_coroutine_that_is_awaited_later_is_not_forgotten(crashes: bool) -> None:
    async def wait(order: Message) -> None:
        offers = Offers.of(order)
        last = orchestrations.send(Message.of(b"last"))
        waiting = asyncio.create_task(offers.receive())
        await asyncio.gather(orchestrations.delay(5), orchestrations.send(Message.of(b"first")))
        waiting.cancel()
        await last

    run = testing.start(declare(wait), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=5))
    assert (run.has_ended, bodies(run)) == (True, [b"first", b"last"])


@pytest.mark.parametrize("is_kept", [True, False])
def test_a_send_that_is_kept_somewhere_and_never_awaited_raises_at_the_end(is_kept: bool) -> None:
    kept: list[object] = []

    async def forget(order: Message) -> None:
        cycle: list[object] = [orchestrations.send(Message.of(b"lost"))]
        cycle.append(cycle)
        if is_kept:
            kept.append(cycle)
        await orchestrations.delay(5)

    run = testing.start(declare(forget), message("order"))
    gc.collect()
    with pytest.raises(NotAwaited, match=r"send\(\) was called in test_forgotten_await.py:\d+ and never awaited"):
        run.advance(timedelta(seconds=5))
    kept.clear()
