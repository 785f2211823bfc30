"""Steps of orchestrations: results, retries, time limits, errors."""

from __future__ import annotations

import asyncio
import uuid
from datetime import timedelta
from decimal import Decimal

import pytest

from postroom import Message, orchestrations, testing
from postroom.orchestrations import StepFailed
from tests.support.offers import bodies, declare, message


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


def test_a_result_that_the_orchestration_changes_is_replayed_as_the_step_returned_it(crashes: bool) -> None:
    async def pay(order: Message) -> None:
        items = await orchestrations.step(lambda: [1])
        items.append(2)
        await orchestrations.delay(5)
        await orchestrations.send(Message.of(repr(items).encode()))

    run = testing.start(declare(pay), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=5))
    assert bodies(run) == [b"[1, 2]"]


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


@pytest.mark.parametrize("value", ["nan", "inf"])
def test_a_step_that_returns_a_float_that_is_no_number_fails_with_the_value(value: str) -> None:
    async def pay(order: Message) -> None:
        await orchestrations.step(float, value)

    run = testing.start(declare(pay), message("order"))
    assert f"The journal cannot store the float {value}." in str(run.error)


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
