from postroom import BTS, Application, adapters, maps, pipelines

ORDER, INVOICE = "http://example.com/shop#Order", "http://example.com/billing#Invoice"

app = Application("envelope")
app.receive_port("BatchesIn").location(
    "batches",
    adapters.File("batches", pattern="*.xml"),
    pipeline=pipelines.XmlReceive(schemas=app.schemas("schemas"), recoverable=True),
)
app.send_port(
    "Billing",
    adapters.File("out/invoices"),
    filter=BTS.MessageType == ORDER,
    maps=[maps.Xslt("order-to-invoice.xslt", source=ORDER, target=INVOICE)],
)
app.send_port("KeyAccounts", adapters.File("out/key-accounts"), filter="Amount >= 1000 and Customer != 'Test'")
