"""What bench.memory runs: a folder whose files pass through unread."""

from postroom import BTS, Application, adapters, pipelines

app = Application("large")
app.receive_port("LargeIn").location("large", adapters.File("in", pattern="*.bin"), pipeline=pipelines.PassThrough())
app.send_port("LargeOut", adapters.File("out"), filter=BTS.ReceivePortName == "LargeIn")
