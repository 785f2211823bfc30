from decimal import Decimal
from postroom import Application, Property, adapters, pipelines

Store = Property("Sales.Store", str)
Amount = Property("Sales.Amount", Decimal)

app = Application("bulk")
app.receive_port("SalesIn").location(
    "sales",
    adapters.SparkReader(
        "csv",
        "exports",
        pattern="*.csv",
        options={"header": True},
        schema="id bigint, store string, amount decimal(12,2)",
    ),
    pipeline=pipelines.Rows(promote={Store: "store", Amount: "amount"}),
)
app.send_port(
    "Lake",
    adapters.SparkSink("parquet", "lake", columns={"store": Store, "amount": Amount}, interval=1),
    filter=Store.exists(),
)
