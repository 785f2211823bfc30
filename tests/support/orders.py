"""Generate orders with the ports that each order must reach, computed without the engine."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable

#: The application of the orders example, with JSON lines.
APPLICATION = """
app.receive_port("OrdersIn").location(
    "drop", adapters.File("in", pattern="*.jsonl"), pipeline=pipelines.JsonLines(promote=PROMOTE)
)
app.send_port("Europe", adapters.File("out/europe"), filter=Region == "EU", retry=Retry(count=100, interval=1))
app.send_port(
    "BigOrders",
    adapters.File("out/big"),
    filter=(Total >= 10_000) & (Region != "TEST") | (Priority == 1),
    retry=Retry(count=100, interval=1),
)
app.send_port("Rest", adapters.Null(), filter=BTS.ReceivePortName == "OrdersIn")
"""
FOLDERS = {"Europe": "out/europe", "BigOrders": "out/big"}


class Orders:
    """Reproducible orders. About half of them are delivered to a folder."""

    def __init__(self, count: int) -> None:
        generator = random.Random(count)
        self.lines: list[bytes] = []
        self.expected: dict[str, Counter[int]] = {"Europe": Counter(), "BigOrders": Counter()}
        for number in range(count):
            region = generator.choice(["EU", "US", "US", "ASIA", "ASIA", "TEST"])
            total = generator.choice([10, 500.5, 9999.99, 10_000, 25_000])
            priority = generator.choice([1, 2, 3, 4, 5, 6])
            if region == "EU":
                self.expected["Europe"][number] += 1
            if (total >= 10_000 and region != "TEST") or priority == 1:
                self.expected["BigOrders"][number] += 1
            order = {"n": number, "region": region, "total": total, "priority": priority}
            self.lines.append(json.dumps(order).encode())

    def files(self, per_file: int) -> Iterable[tuple[str, bytes]]:
        """Yield the orders as names and contents of files with ``per_file`` lines."""
        for start in range(0, len(self.lines), per_file):
            yield f"{start:06}.jsonl", b"\n".join(self.lines[start : start + per_file]) + b"\n"


def count_orders(bodies: Iterable[bytes]) -> Counter[int]:
    """Count how often each order is in these bodies."""
    return Counter(json.loads(body)["n"] for body in bodies)
