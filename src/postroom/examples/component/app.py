from hashlib import sha256

from postroom import Application, Message, Property, adapters, pipelines
from postroom.pipelines import components

Sensor = Property("Readings.Sensor", str)


class Checksum(components.Decoder):
    """The last line of a file is the SHA-256 of all lines before it. Verify it, and remove it."""

    prefix: str = "sha256="

    def decode(self, message: Message) -> bytes:
        content, _, last = message.data.rstrip(b"\n").rpartition(b"\n")
        if last.decode(errors="replace") != self.prefix + sha256(content).hexdigest():
            raise ValueError("the checksum in the last line is not that of the lines before it")
        return content


app = Application("component")
app.receive_port("ReadingsIn").location(
    "readings",
    adapters.File("readings", pattern="*.jsonl"),
    pipeline=pipelines.Receive(decode=[Checksum()], disassemble=[pipelines.JsonLines(promote={Sensor: "sensor"})]),
)
app.send_port("Measurements", adapters.File("out/readings"), filter=Sensor.exists())
