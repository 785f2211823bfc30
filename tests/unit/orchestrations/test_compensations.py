"""All compensations of a scope run, although some of them fail. Nothing hides the exception that started them."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import pytest

from postroom import Message, orchestrations, testing
from postroom.orchestrations import StepFailed
from tests.support.offers import bodies, declare, message


class LibraryExit(BaseException):
    """What a library raises to end a program. It is no Exception."""


async def undo(text: str, *, error: BaseException | None = None) -> None:
    """Send a message, and fail after a persistence point."""
    await orchestrations.send(Message.of(text.encode()))
    await orchestrations.delay(1)
    if error is not None:
        raise error


async def tell(text: str) -> None:
    await orchestrations.send(Message.of(text.encode()))


def start(function: object, *, crashes: bool) -> testing.Run:
    run = testing.start(declare(function), message("order"), crashes=crashes)  # type: ignore[arg-type]
    run.advance(timedelta(minutes=1))
    return run


def describe(error: BaseException | None) -> str:
    if isinstance(error, BaseExceptionGroup):
        return f"{error.message} {[describe(one) for one in error.exceptions]} from {describe(error.__cause__)}"
    return repr(error)


def test_a_failed_compensation_does_not_stop_the_others(crashes: bool) -> None:
    async def book(order: Message) -> None:
        try:
            async with orchestrations.scope() as outer:
                outer.compensate_with(undo, "outer 1")
                outer.compensate_with(undo, "outer 2", error=LookupError("o"))
                async with orchestrations.scope() as inner:
                    for number in range(3):
                        inner.compensate_with(undo, f"inner {number}", error=OSError(number) if number else None)
                    raise ValueError("original")
        except ExceptionGroup as group:
            await tell(describe(group))

    run = start(book, crashes=crashes)
    assert run.has_ended
    *undone, described = bodies(run)
    assert undone == [b"inner 2", b"inner 1", b"inner 0", b"outer 2", b"outer 1"]
    assert described.decode() == (
        "1 of 2 compensations has failed [\"LookupError('o')\"] from "
        "2 of 3 compensations have failed ['OSError(2)', 'OSError(1)'] from ValueError('original')"
    )


def test_failures_of_a_scope_that_had_ended_are_in_one_group(crashes: bool) -> None:
    async def book(order: Message) -> None:
        try:
            async with orchestrations.scope() as outer:
                outer.compensate_with(undo, "outer", error=LookupError("o"))
                async with orchestrations.scope() as inner:
                    inner.compensate_with(undo, "inner 1")
                    inner.compensate_with(undo, "inner 2", error=OSError(2))
                raise ValueError("original")
        except* OSError:
            await tell("OSError")
        except* LookupError as group:
            await tell(describe(group))

    run = start(book, crashes=crashes)
    assert bodies(run)[:-1] == [b"inner 2", b"inner 1", b"outer", b"OSError"]
    assert bodies(run)[-1].decode() == (
        "2 of 3 compensations have failed [\"LookupError('o')\"] from ValueError('original')"
    )


def test_a_compensation_that_raises_no_exception_but_an_exit_does_not_stop_the_others(crashes: bool) -> None:
    async def book(order: Message) -> None:
        try:
            async with orchestrations.scope() as trip:
                trip.compensate_with(undo, "1")
                trip.compensate_with(undo, "2", error=LibraryExit("enough"))
                raise ValueError("original")
        except BaseExceptionGroup as group:
            await tell(describe(group))

    run = start(book, crashes=crashes)
    assert bodies(run)[:2] == [b"2", b"1"]
    assert b"LibraryExit('enough')" in bodies(run)[2]


def test_an_explicit_compensation_runs_all_and_raises_a_group_without_a_cause(crashes: bool) -> None:
    async def book(order: Message) -> None:
        async with orchestrations.scope() as trip:
            trip.compensate_with(undo, "1")
            trip.compensate_with(undo, "2", error=OSError(2))
            try:
                await trip.compensate()
            except ExceptionGroup as group:
                await tell(describe(group))

    run = start(book, crashes=crashes)
    assert run.has_ended
    assert bodies(run) == [b"2", b"1", b"1 of 2 compensations has failed ['OSError(2)'] from None"]


def test_a_timeout_during_compensations_interrupts_one_and_is_raised_after_the_others(crashes: bool) -> None:
    async def book(order: Message) -> None:
        try:
            async with asyncio.timeout(1.5), orchestrations.scope() as trip:
                for number in range(4):
                    trip.compensate_with(undo, str(number), error=OSError(number) if number == 1 else None)
                raise ValueError("original")
        except TimeoutError as error:
            interruption = error.__cause__
            await tell(describe(interruption.__cause__ if interruption else None))

    run = start(book, crashes=crashes)
    assert bodies(run)[:-1] == [b"3", b"2", b"1", b"0"]
    assert bodies(run)[-1] == b"1 of 4 compensations has failed ['OSError(1)'] from ValueError('original')"


def test_a_timeout_of_the_body_is_the_cause_of_failed_compensations(crashes: bool) -> None:
    async def book(order: Message) -> None:
        try:
            async with asyncio.timeout(1), orchestrations.scope() as trip:
                trip.compensate_with(undo, "1")
                trip.compensate_with(undo, "2", error=OSError(2))
                await orchestrations.delay(60)
        except ExceptionGroup as group:
            await tell(describe(group))

    run = start(book, crashes=crashes)
    assert bodies(run) == [b"2", b"1", b"1 of 2 compensations has failed ['OSError(2)'] from CancelledError()"]


def test_an_instance_that_terminates_itself_in_a_compensation_runs_no_other_one(crashes: bool) -> None:
    async def book(order: Message) -> None:
        async with orchestrations.scope() as trip:
            trip.compensate_with(undo, "never")
            trip.compensate_with(orchestrations.terminate, "enough")
            raise ValueError("original")

    run = start(book, crashes=crashes)
    assert (run.termination, bodies(run)) == ("enough", [])


@pytest.mark.parametrize("waits", [False, True])
def test_the_error_of_the_instance_shows_the_original_and_every_failed_compensation(waits: bool, crashes: bool) -> None:
    def charge() -> None:
        raise OSError("no connection")

    async def release(error: str) -> None:
        if waits:
            await orchestrations.delay(1)
        raise LookupError(error)

    async def book(order: Message) -> None:
        async with orchestrations.scope() as outer:
            outer.compensate_with(release, "no hotel")
            async with orchestrations.scope() as inner:
                inner.compensate_with(release, "no room")
                inner.compensate_with(release, "no flight")
                await orchestrations.step(charge)

    run = start(book, crashes=crashes)
    error = str(run.error)
    assert "postroom/orchestrations" not in error
    positions = [
        error.index(text)
        for text in ("no connection", "LookupError: no flight", "LookupError: no room", "LookupError: no hotel")
    ]
    assert positions == sorted(positions)
    assert ("Compensations have run and are stored" if waits else "The compensations were not stored") in error


def test_failed_tasks_of_a_group_are_shown() -> None:
    async def fail(text: str) -> None:
        raise StepFailed(text)

    async def book(order: Message) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail("first"))
            group.create_task(fail("second"))

    run = start(book, crashes=False)
    assert "StepFailed: first" in str(run.error)
    assert "StepFailed: second" in str(run.error)
