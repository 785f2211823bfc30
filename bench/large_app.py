"""The application of bench.memory: files pass through unread or are decompressed first."""

from postroom import BTS, Application, adapters, pipelines
from postroom.pipelines import components

app = Application("large")
app.receive_port("LargeIn").location("large", adapters.File("in", pattern="*.bin"), pipeline=pipelines.PassThrough())
app.receive_port("PackedIn").location(
    "packed", adapters.File("in", pattern="*.gz"), pipeline=pipelines.Receive(decode=[components.Gzip()])
)
app.send_port("LargeOut", adapters.File("out"), filter=BTS.ReceivePortName.exists())
