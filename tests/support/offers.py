"""Orchestrations that orders activate and offers are correlated with, for tests without a MessageBox."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from postroom import Message, Property, orchestrations, testing
from postroom.filters.expression import Filter
from postroom.orchestrations import Correlation, Orchestration
from postroom.orchestrations.definition import OrchestrationFunction

OrderId = Property("Tests.OrderId", str)
Kind = Property("Tests.Kind", str)
Offers = Correlation(OrderId, filter=Kind == "offer")
Invoices = Correlation(OrderId, filter=Kind == "invoice")


def declare(
    function: OrchestrationFunction,
    *,
    activate: Filter | None = Kind == "order",
    version: int = 1,
    convoy: tuple[Property, ...] = (),
) -> Orchestration:
    return Orchestration(name=function.__name__, version=version, function=function, activate=activate, convoy=convoy)


def message(kind: str, body: bytes = b"", order_id: str = "1") -> Message:
    return Message.of(body, promoted={OrderId: order_id, Kind: kind})


def bodies(run: testing.Run) -> list[bytes]:
    return [sent.message.data for sent in run.sent]


async def collect_offers(order: Message) -> None:
    offers = Offers.of(order)
    await orchestrations.send(Message.of(b"request"), to="Acme")
    received: list[Message] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(60):
            while len(received) < 2:
                received.append(await offers.receive())
    await orchestrations.send(Message.of(b", ".join(offer.data for offer in received)), to="Buyer")
