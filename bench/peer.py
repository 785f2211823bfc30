"""RabbitMQ as a router by properties: durable queues on a headers exchange, persistent messages, each confirmed."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pika import spec

from bench.amqp import Publisher, frames
from bench.ratios import seconds

_EXCHANGE = "bench"
#: Declaring a queue takes the broker milliseconds. Beyond this, subscriptions share queues, which is to its favour.
_MOST_QUEUES = 1_000
_OUTSTANDING = 1_000
#: As many connections as it is fastest with.
_CONNECTIONS = (1, 2, 4)
_SECONDS = 2.0
_FEWEST, _MOST = 200, 20_000
_AWAITED = 100


class Peer:
    """A broker with bindings; every message is made before the clock starts."""

    def __init__(self, port: int) -> None:
        self._publishers = [Publisher(port) for _ in range(max(_CONNECTIONS))]
        self._bound = 0
        self._messages: list[bytes] = []
        self._connections = 1
        self._speeds: dict[int, float] = {}
        self._count = _FEWEST
        exchange = spec.Exchange.Declare(exchange=_EXCHANGE, type="headers", durable=True)
        self._publishers[0].call((), exchange, spec.Exchange.DeclareOk)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        for publisher in self._publishers:
            publisher.close()

    def bind(self, wanted: Sequence[Mapping[str, Any]]) -> None:
        """One binding more for each of these: all of its headers have to be as they say."""
        methods: list[Any] = []
        for number, headers in enumerate(wanted, start=self._bound):
            queue = f"q{number % _MOST_QUEUES}"
            if number < _MOST_QUEUES:
                methods.append(spec.Queue.Declare(queue=queue, durable=True, nowait=True))
            arguments = {"x-match": "all", **headers}
            methods.append(spec.Queue.Bind(queue=queue, exchange=_EXCHANGE, nowait=True, arguments=arguments))
        methods[-1].nowait = False
        self._publishers[0].call(methods[:-1], methods[-1], spec.Queue.BindOk)
        self._bound += len(wanted)

    def load(self, messages: Sequence[tuple[Mapping[str, Any], bytes]]) -> None:
        """Headers and body of the messages to be published from now on; finds out with how many connections."""
        self._messages = [frames(_EXCHANGE, headers, body) for headers, body in messages]
        self._speeds = {}
        for self._connections in _CONNECTIONS:
            self._count = _FEWEST
            self._speeds[self._connections] = max(self.stream() for _ in range(2))
        self._connections = max(self._speeds, key=self._speeds.__getitem__)

    @property
    def tried(self) -> str:
        return ", ".join(f"{speed:,.0f} on {count}" for count, speed in self._speeds.items())

    def stream(self) -> float:
        """Messages a second, with many on their way at the same time; about as many as take two seconds."""
        each = self._count // self._connections
        threads = [
            threading.Thread(
                target=publisher.publish,
                args=([self._messages[place % len(self._messages)] for place in range(at, at + each)],),
                kwargs={"outstanding": _OUTSTANDING // self._connections},
            )
            for at, publisher in zip(range(0, self._count, each), self._publishers[: self._connections], strict=False)
        ]
        elapsed = seconds(lambda: _run(threads))
        speed = each * len(threads) / elapsed
        self._empty()
        self._count = max(_FEWEST, min(_MOST, round(speed * _SECONDS)))
        return speed

    def publish(self) -> float:
        """The median time of a publish by somebody who waits for each confirm."""
        publisher = self._publishers[0]
        times = [seconds(partial(publisher.publish, [one], outstanding=1)) for one in self._messages[:_AWAITED]]
        self._empty()
        return statistics.median(times)

    def _empty(self) -> None:
        queues = [f"q{number}" for number in range(min(self._bound, _MOST_QUEUES))]
        purges = [spec.Queue.Purge(queue=queue, nowait=True) for queue in queues[:-1]]
        self._publishers[0].call(purges, spec.Queue.Purge(queue=queues[-1]), spec.Queue.PurgeOk)


def _run(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
