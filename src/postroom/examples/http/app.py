import os

from postroom import BTS, Application, Property, Retry, adapters, pipelines

PORT = int(os.environ.get("PORT", "8080"))
Country = Property("WebOrders.Country", str)

app = Application("http")
app.receive_port("WebOrdersIn").location(
    "web-orders",
    adapters.HttpReceive("/orders", port=PORT),
    pipeline=pipelines.Json(promote={Country: "country"}),
)
app.send_port(
    "Partner",
    adapters.Http(f"http://127.0.0.1:{PORT}/partner"),
    filter=Country == "FR",
    retry=Retry(count=20, interval=1),
)
app.send_port("Shop", adapters.File("out/shop"), filter=Country != "FR")

# Stands for the partner's own server: it writes what it is sent into a folder.
app.receive_port("PartnerIn").location("partner-server", adapters.HttpReceive("/partner", port=PORT))
app.send_port("PartnerFolder", adapters.File("out/partner"), filter=BTS.ReceivePortName == "PartnerIn")
