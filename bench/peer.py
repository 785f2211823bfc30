"""RabbitMQ with a headers exchange, durable queues, and persistent messages that are confirmed."""

from __future__ import annotations

import statistics
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from pika import spec

from bench.amqp import Publisher, encode_message
from bench.ratios import seconds

_EXCHANGE = "bench"
#: Declaring a queue takes milliseconds. Above this number subscriptions share queues, which favours RabbitMQ.
_MAX_QUEUES = 1_000
_OUTSTANDING = 1_000
#: The fastest of these numbers of connections is used.
_CONNECTIONS = (1, 2, 4)
_ROUND_SECONDS = 2.0
_MIN_MESSAGES, _MAX_MESSAGES = 200, 20_000
_CONFIRMED_MESSAGES = 100


class Peer:
    """A broker with bindings. Messages are encoded before the clock starts."""

    def __init__(self, port: int) -> None:
        self._publishers = [Publisher(port) for _ in range(max(_CONNECTIONS))]
        self._bound = 0
        self._messages: list[bytes] = []
        self._connections = 1
        self._speeds: dict[int, float] = {}
        self._count = _MIN_MESSAGES
        exchange = spec.Exchange.Declare(exchange=_EXCHANGE, type="headers", durable=True)
        self._publishers[0].send_methods((), exchange, spec.Exchange.DeclareOk)

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        for publisher in self._publishers:
            publisher.close()

    def bind(self, bindings: Sequence[Mapping[str, Any]]) -> None:
        """Add bindings. A message matches a binding if all of its headers are equal."""
        methods: list[Any] = []
        for number, headers in enumerate(bindings, start=self._bound):
            queue = f"q{number % _MAX_QUEUES}"
            if number < _MAX_QUEUES:
                methods.append(spec.Queue.Declare(queue=queue, durable=True, nowait=True))
            arguments = {"x-match": "all", **headers}
            methods.append(spec.Queue.Bind(queue=queue, exchange=_EXCHANGE, nowait=True, arguments=arguments))
        methods[-1].nowait = False
        self._publishers[0].send_methods(methods[:-1], methods[-1], spec.Queue.BindOk)
        self._bound += len(bindings)

    def load(self, messages: Sequence[tuple[Mapping[str, Any], bytes]]) -> None:
        """Encode the messages to be published, and find the fastest number of connections."""
        self._messages = [encode_message(_EXCHANGE, headers, body) for headers, body in messages]
        self._speeds = {}
        for self._connections in _CONNECTIONS:
            self._count = _MIN_MESSAGES
            self._speeds[self._connections] = max(self.stream() for _ in range(2))
        self._connections = max(self._speeds, key=self._speeds.__getitem__)

    @property
    def measured_speeds(self) -> str:
        return ", ".join(f"{speed:,.0f} on {count}" for count, speed in self._speeds.items())

    def stream(self) -> float:
        """Return messages/s with many unconfirmed messages. A round takes about two seconds."""
        each = self._count // self._connections
        threads = [
            threading.Thread(
                target=publisher.publish,
                args=([self._messages[position % len(self._messages)] for position in range(at, at + each)],),
                kwargs={"outstanding": _OUTSTANDING // self._connections},
            )
            for at, publisher in zip(range(0, self._count, each), self._publishers[: self._connections], strict=False)
        ]
        elapsed = seconds(lambda: _run_threads(threads))
        speed = each * len(threads) / elapsed
        self._purge_queues()
        self._count = max(_MIN_MESSAGES, min(_MAX_MESSAGES, round(speed * _ROUND_SECONDS)))
        return speed

    def publish(self) -> float:
        """Return the median time of a publish with its confirm."""
        publisher = self._publishers[0]
        times = [
            seconds(partial(publisher.publish, [one], outstanding=1)) for one in self._messages[:_CONFIRMED_MESSAGES]
        ]
        self._purge_queues()
        return statistics.median(times)

    def _purge_queues(self) -> None:
        queues = [f"q{number}" for number in range(min(self._bound, _MAX_QUEUES))]
        purges = [spec.Queue.Purge(queue=queue, nowait=True) for queue in queues[:-1]]
        self._publishers[0].send_methods(purges, spec.Queue.Purge(queue=queues[-1]), spec.Queue.PurgeOk)


def _run_threads(threads: Sequence[threading.Thread]) -> None:
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
