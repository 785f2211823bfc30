"""An orchestration can answer requests if its code refers to a reply port, or sends requests on."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from postroom import Message, orchestrations
from postroom.application.checks.answering_code import can_answer
from postroom.orchestrations import DirectPort, PartnerPort, reply_port, send, start
from postroom.orchestrations.definition import Orchestration

Checks = PartnerPort("check", "Checks")


async def only_read(message: Message) -> None:
    await send(message, to="Out")


async def answer(message: Message) -> None:
    await send(message, to=reply_port(message))


async def answer_by_module(message: Message) -> None:
    await orchestrations.send(message, to=orchestrations.reply_port(message))


def find_port(message: Message) -> DirectPort:
    return reply_port(message)


async def answer_by_function(message: Message) -> None:
    await send(message, to=find_port(message))


async def answer_inside(message: Message) -> None:
    async def send_answer() -> None:
        await send(message, to=reply_port(message))

    await send_answer()


async def answer_after_import(message: Message) -> None:
    from postroom.orchestrations import reply_port as find

    await send(message, to=find(message))


class Answers:
    def __init__(self, message: Message) -> None:
        self.message = message

    async def send(self) -> None:
        await send(self.message, to=reply_port(self.message))


async def answer_by_object(message: Message) -> None:
    await Answers(message).send()


part = Orchestration(name="part", version=1, function=answer, activate=None)


async def call_another(message: Message) -> None:
    await part(message)


async def start_another(message: Message) -> None:
    await start(part, message)


async def send_to_partner(message: Message) -> None:
    await send(message, to=Checks)


async def create_partner_port(message: Message) -> None:
    await send(message, to=PartnerPort("check", message.data.decode()))


def declare_with(port: PartnerPort) -> Callable[[Message], Coroutine[Any, Any, None]]:
    async def send_to_port(message: Message) -> None:
        await send(message, to=port)

    return send_to_port


@pytest.mark.parametrize(
    "function",
    [
        answer,
        answer_by_module,
        answer_by_function,
        answer_inside,
        answer_after_import,
        answer_by_object,
        call_another,
        start_another,
        send_to_partner,
        create_partner_port,
        declare_with(Checks),
    ],
)
def test_what_refers_to_a_reply_port_or_sends_requests_on_can_answer(function: Callable[..., Any]) -> None:
    assert can_answer(function)


def test_what_only_reads_requests_cannot_answer() -> None:
    assert not can_answer(only_read)
