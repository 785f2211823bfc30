import asyncio
import json
from contextlib import suppress
from typing import Any

from postroom import Application, Message, Property, adapters, pipelines
from postroom.orchestrations import Correlation, scope, send

Kind = Property("Procurement.Kind", str)
OrderId = Property("Procurement.OrderId", str)
Offers = Correlation(OrderId, filter=Kind == "offer")
Confirmations = Correlation(OrderId, filter=Kind == "confirmation")

app = Application("procurement")
app.receive_port("In").location(
    "in",
    adapters.File("documents", pattern="*.json"),
    pipeline=pipelines.Json(promote={Kind: "kind", OrderId: "order"}),
)
suppliers = {name: app.send_port(name, adapters.File(f"out/{name}")) for name in ("acme", "bolt")}
budget = app.send_port("budget", adapters.File("out/budget"))
buyer = app.send_port("buyer", adapters.File("out/buyer"))


@app.orchestration(activate=Kind == "order", correlations=[Offers, Confirmations])
async def procure(order: Message) -> None:
    """Ask the suppliers for offers, and buy from the cheapest one."""
    offers = await collect_offers(order)
    if not offers:
        await send(document(order, "failed", reason="no offer in time"), to=buyer)
        return
    best = min(offers, key=lambda offer: offer["price"])
    try:
        async with scope() as purchase:
            await send(document(order, "reserve", price=best["price"]), to=budget)
            purchase.compensate_with(send, document(order, "release", price=best["price"]), to=budget)
            await confirm(order, best["supplier"])
    except PurchaseRefused:
        await send(document(order, "failed", reason=f"{best['supplier']} has refused"), to=buyer)
    else:
        await send(document(order, "bought", supplier=best["supplier"], price=best["price"]), to=buyer)


async def collect_offers(order: Message) -> list[dict[str, Any]]:
    """Return the offers that arrive in time."""
    arriving = Offers.of(order)
    for supplier in suppliers.values():
        await send(document(order, "request"), to=supplier)
    offers: list[dict[str, Any]] = []
    with suppress(TimeoutError):
        async with asyncio.timeout(json.loads(order.data)["wait_seconds"]):
            while len(offers) < len(suppliers):
                offers.append(json.loads((await arriving.receive()).data))
    return offers


async def confirm(order: Message, supplier: str) -> None:
    """Buy from a supplier. Raise PurchaseRefused if the supplier does not sell any more."""
    confirmations = Confirmations.of(order)
    await send(document(order, "purchase"), to=suppliers[supplier])
    confirmation = await confirmations.receive()
    if not json.loads(confirmation.data)["accepted"]:
        raise PurchaseRefused


class PurchaseRefused(Exception):
    """The supplier does not sell any more."""


def document(order: Message, kind: str, **values: Any) -> Message:
    return Message.of(json.dumps({"kind": kind, "order": order.context[OrderId], **values}).encode())
