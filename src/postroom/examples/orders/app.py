from decimal import Decimal
from postroom import BTS, Application, Property, adapters, pipelines

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)

app = Application("orders")
app.receive_port("OrdersIn").location(
    "drop",
    adapters.File("in", pattern="*.json"),
    pipeline=pipelines.Json(promote={Region: "region", Total: "total", Priority: "priority"}),
)
app.send_port("Europe", adapters.File("out/europe"), filter=Region == "EU")
app.send_port("BigOrders", adapters.File("out/big"), filter=(Total >= 10_000) & (Region != "TEST") | (Priority == 1))
app.send_port("Audit", adapters.File("out/audit"), filter=BTS.ReceivePortName == "OrdersIn")
