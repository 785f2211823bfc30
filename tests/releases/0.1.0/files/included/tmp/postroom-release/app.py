"""The application of the MessageBoxes that releases leave for the tests of later versions. A backup contains its own
copy of this file."""

from __future__ import annotations

from postroom import Application, Message, Property, Retry, adapters, orchestrations, pipelines
from postroom.orchestrations import Correlation

Kind = Property("Shop.Kind", str)
OrderId = Property("Shop.OrderId", str)
Payments = Correlation(OrderId, filter=Kind == "payment")

app = Application("shop")
app.property(Kind, OrderId)
app.receive_port("OrdersIn").location(
    "drop", adapters.File("in"), pipeline=pipelines.Json(promote={Kind: "kind", OrderId: "id"})
)
app.send_port("Audit", adapters.File("out/audit"), filter=Kind == "order")
app.send_port("Partner", adapters.File("out/partner"), filter=Kind == "order", retry=Retry(count=0))
app.send_port("Later", adapters.File("out/later"), filter=Kind == "order", retry=Retry(interval=10))
app.send_port("Warehouse", adapters.File("out/warehouse"))


@app.orchestration(activate=Kind == "order", correlations=[Payments])
async def ship_when_paid(order: Message) -> None:
    await Payments.of(order).receive()
    await orchestrations.send(Message.of(order.data), to="Warehouse")
