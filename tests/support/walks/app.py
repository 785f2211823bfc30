"""An application with the five paths that ``python -m tests.support.walks`` counts."""

import json
import os

from postroom import BTS, Application, Message, Property, Retry, adapters, pipelines
from postroom.orchestrations import Correlation, send

Kind = Property("Walk.Kind", str)
Number = Property("Walk.Number", str)
Payments = Correlation(Number, filter=Kind == "payment")

app = Application("walk")
app.receive_port("In").location(
    "drop", adapters.File("in", pattern="*.json"), pipeline=pipelines.Json(promote={Kind: "kind", Number: "number"})
)
for name in ("one", "two", "three"):
    app.send_port(name, adapters.File(f"out/{name}"), filter=Kind == "file")
app.send_port("published", adapters.File("out/published"), filter=Kind == "publish")
app.receive_port("Asked", two_way=True).location(
    "asked",
    adapters.HttpReceive("/asked", port=int(os.environ["WALKS_PORT"])),
    pipeline=pipelines.Json(promote={Kind: "kind"}),
)
app.send_port(
    "answers",
    adapters.Http(f"http://127.0.0.1:{os.environ['WALKS_ANSWERS']}/"),
    two_way=True,
    filter=BTS.ReceivePortName == "Asked",
    receive_pipeline=pipelines.PassThrough(),
    retry=Retry(count=0),
)
app.send_port("late", adapters.File("out/late"), filter=Kind == "late")
done = app.send_port("done", adapters.File("out/done"))


@app.orchestration(activate=Kind == "order", correlations=[Payments])
async def buy(order: Message) -> None:
    payment = await Payments.of(order).receive()
    await send(Message.of(json.dumps({"paid": payment.context[Number]}).encode()), to=done)
