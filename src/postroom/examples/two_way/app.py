import os

from postroom import BTS, Application, Property, Retry, adapters, pipelines

PORT = int(os.environ.get("PORT", "8080"))
PRICING_PORT = int(os.environ.get("PRICING_PORT", "8090"))
Product = Property("Quotes.Product", str)

app = Application("two_way")

# HTTP clients wait here for the response to their request.
app.receive_port("Quotes", two_way=True).location(
    "quotes",
    adapters.HttpReceive("/quotes", port=PORT, response_timeout=30),
    pipeline=pipelines.Json(promote={Product: "product"}),
)

# Sends each request to the pricing service, and publishes its response.
app.send_port(
    "Pricing",
    adapters.Http(f"http://127.0.0.1:{PRICING_PORT}/price"),
    two_way=True,
    filter=BTS.ReceivePortName == "Quotes",
    receive_pipeline=pipelines.Json(promote={Product: "product"}),
    retry=Retry(count=0),
)

# Gets a copy of each response.
app.send_port("Prices", adapters.File("out/prices"), filter=BTS.SPName == "Pricing")
