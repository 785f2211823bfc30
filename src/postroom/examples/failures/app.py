from postroom import Application, ErrorReport, Property, Retry, adapters, pipelines

Kind = Property("Claims.Kind", str)

app = Application("failures")
app.receive_port("ClaimsIn", route_failures=True).location(
    "claims", adapters.File("claims", pattern="*.json"), pipeline=pipelines.Json(promote={Kind: "kind"})
)
app.send_port("Cars", adapters.File("out/cars"), filter=Kind == "car")
app.send_port(
    "Insurer",
    adapters.Http("http://127.0.0.1:9/claims"),  # no server listens there
    filter=Kind == "house",
    retry=Retry(count=1, interval=1),
    route_failures=True,
)
app.send_port("Repair", adapters.File("out/repair"), filter=ErrorReport.ReceivePortName == "ClaimsIn")
app.send_port("Tickets", adapters.File("out/tickets"), filter=ErrorReport.SendPortName == "Insurer")
