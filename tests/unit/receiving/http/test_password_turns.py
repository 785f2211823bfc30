"""Clients take turns in the verification of their passwords."""

from __future__ import annotations

import asyncio

import pytest

from postroom.http.messages import RequestFailed
from postroom.receiving.http.password_turns import PasswordTurns


class Verifications:
    """Requests whose passwords are verified one at a time. ``finished`` has their clients in order."""

    def __init__(self) -> None:
        self.turns = PasswordTurns(at_once=1)
        self.finished: list[str] = []

    async def verify(self, client: str, *, is_correct: bool = False) -> None:
        async with self.turns.take_turn(client):
            await asyncio.sleep(0)
            self.finished.append(client)
            self.turns.record_result(client, is_correct=is_correct)

    async def verify_all(self, *clients: str) -> list[str]:
        self.finished.clear()
        await asyncio.gather(*map(self.verify, clients))
        return self.finished


def test_clients_take_turns() -> None:
    async def run() -> None:
        verifications = Verifications()
        requests = [verifications.verify(client, is_correct=True) for client in "aaabbc"]
        await asyncio.gather(*requests)
        assert verifications.finished == ["a", "a", "b", "c", "a", "b"]

    asyncio.run(run())


def test_clients_with_wrong_passwords_come_last() -> None:
    async def run() -> None:
        verifications = Verifications()
        await verifications.verify("a")
        await verifications.verify("b")
        await verifications.verify("b")
        assert await verifications.verify_all("x", "b", "a", "c") == ["x", "c", "a", "b"]

    asyncio.run(run())


def test_a_correct_password_clears_the_wrong_ones() -> None:
    async def run() -> None:
        verifications = Verifications()
        await verifications.verify("a")
        await verifications.verify("a", is_correct=True)
        await verifications.verify("b")
        assert await verifications.verify_all("x", "b", "a") == ["x", "a", "b"]

    asyncio.run(run())


def test_a_request_that_is_cancelled_or_waits_too_long_gives_its_turn_away() -> None:
    async def run() -> None:
        turns = PasswordTurns(at_once=1, max_wait=0.01)
        async with turns.take_turn("a"):
            with pytest.raises(RequestFailed, match="too many requests"):
                async with turns.take_turn("b"):
                    pass
            waiting = asyncio.create_task(turns.take_turn("c").__aenter__())
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        async with turns.take_turn("d"):
            pass

    asyncio.run(run())


def test_an_error_of_a_verification_releases_the_turn() -> None:
    async def run() -> None:
        turns = PasswordTurns(at_once=1)
        with pytest.raises(TimeoutError, match="of the verification"):
            async with turns.take_turn("a"):
                raise TimeoutError("of the verification")
        async with turns.take_turn("a"):
            pass

    asyncio.run(run())
