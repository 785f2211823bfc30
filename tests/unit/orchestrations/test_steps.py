"""Steps of orchestrations: results, retries, time limits, errors."""

from __future__ import annotations

import asyncio
import uuid
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import NoReturn

import pytest

from postroom import Message, orchestrations, testing
from postroom.orchestrations import StepFailed
from tests.support.offers import bodies, declare, message


class LibraryExit(BaseException):
    """What a library raises to end a program. It is no Exception."""


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


def nest(depth: int) -> object:
    value: object = 1
    for _ in range(depth):
        value = [value]
    return value


class BrokenDict(dict[str, int]):
    """Another library's type, whose methods raise what they want."""

    def items(self) -> NoReturn:
        raise LibraryExit("broken")


@pytest.mark.parametrize("secret", [False, True])
@pytest.mark.parametrize(
    ("result", "reason"),
    [
        (object(), "The journal cannot store a value of the type object."),
        (float("nan"), "The journal cannot store the float nan."),
        (float("inf"), "The journal cannot store the float inf."),
        ({1: "one"}, "The journal cannot store a value of the type dict."),
        (nest(101), "The journal cannot store a value whose lists and dicts are nested more than 100 deep."),
        (nest(490), "nested more than 100 deep"),
        (nest(100_000), "nested more than 100 deep"),
        (10**5000, "The journal cannot store a value of the type int: "),
        (BrokenDict(), "LibraryExit"),
        ("x" * 2_000_000, "The result has 2,000,002 characters, and the journal can have 1,000,000."),
    ],
    ids=["object", "nan", "inf", "keys", "101 deep", "490 deep", "100000 deep", "huge int", "broken", "large"],
)
def test_a_step_whose_result_cannot_be_stored_is_not_repeated(result: object, reason: str, secret: bool) -> None:
    calls: list[int] = []

    def charge() -> object:
        calls.append(1)
        return result

    async def pay(order: Message) -> None:
        with suppress(StepFailed):
            await orchestrations.step(charge, attempts=3, secret=secret)

    limits = orchestrations.JournalLimits(size=1_000_000)
    run = testing.start(replace(declare(pay), journal_limits=limits), message("order"))
    run.advance(timedelta(minutes=1))
    assert calls == [1]
    assert "charge has run, but its result cannot be stored." in str(run.error)
    assert reason in str(run.error)


def test_a_result_may_be_nested_and_is_replayed(crashes: bool) -> None:
    async def ask(order: Message) -> None:
        value = await orchestrations.step(nest, 100)
        await orchestrations.delay(1)
        await orchestrations.send(Message.of(repr(value).encode()))

    run = testing.start(declare(ask), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=1))
    assert bodies(run) == [repr(nest(100)).encode()]


def test_a_result_may_have_the_key_that_marks_types_in_the_journal(crashes: bool) -> None:
    schema = {"$type": "tuple", "value": [1, {"$type": {"$type": 2}}]}

    async def ask(order: Message) -> None:
        value = await orchestrations.step(lambda: schema)
        await orchestrations.delay(1)
        await orchestrations.send(Message.of(repr(value).encode()))

    run = testing.start(declare(ask), message("order"), crashes=crashes)
    run.advance(timedelta(seconds=1))
    assert bodies(run) == [repr(schema).encode()]


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
@pytest.mark.parametrize(
    "error",
    [
        SystemExit("enough"),
        asyncio.CancelledError("enough"),
        KeyboardInterrupt("enough"),
        GeneratorExit("enough"),
        LibraryExit("enough"),
    ],
    ids=repr,
)
def test_an_exit_of_a_step_is_a_failure_of_the_step(error: BaseException, timeout: float | None) -> None:
    def leave() -> None:
        raise error

    async def run_step(order: Message) -> None:
        await orchestrations.step(leave, timeout=timeout)

    run = testing.start(declare(run_step), message("order"))
    assert "StepFailed" in str(run.error)
    assert f"{type(error).__name__}: enough" in str(run.error)


def test_the_error_of_a_step_may_have_no_text(crashes: bool) -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise LibraryExit

    def fail() -> None:
        raise Unprintable

    async def run_step(order: Message) -> None:
        await orchestrations.step(fail)

    run = testing.start(declare(run_step), message("order"), crashes=crashes)
    assert "Unprintable: its text cannot be read" in str(run.error)


def test_the_stored_error_of_a_step_has_a_limited_length() -> None:
    def fail() -> None:
        raise ValueError("x" * 1_000_000)

    async def run_step(order: Message) -> None:
        await orchestrations.step(fail)

    run = testing.start(declare(run_step), message("order"))
    assert len(str(run.error)) < 20_000
    assert "... (1,000,000 characters)" in str(run.error)
