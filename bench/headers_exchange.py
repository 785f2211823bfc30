"""Both lanes against RabbitMQ's headers exchange at 10 to 10,000 subscriptions, three matches per message.

    python -m bench.headers_exchange

Workload W equal: a subscription compares a type and a port, in Postroom by a filter, in RabbitMQ by headers with
``x-match: all``. Messages have five properties and 1 KB. Both systems use both cores. Streaming lane: from claimed
files to committed rows, against RabbitMQ with its best number of connections and a thousand unconfirmed messages.
Direct lane: one message at a time, against RabbitMQ with a confirm per message.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence

from bench import rabbitmq
from bench.messagebox import MeasuredBox, measured_box, pad_json
from bench.peer import Peer
from bench.ratios import Result, compute_ratio, measure_alternately, seconds
from bench.streaming import stream
from bench.workload import PRIORITIES, Amount, Country, Port, Priority, Type
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.message import Message
from postroom.messagebox.connection import Login, connect
from postroom.properties import Property
from postroom.spark.receive.stream import start_stream
from postroom.values import Value
from tests.support.spark_session import open_session

#: Targets by number of subscriptions: minimum ratio of the throughput, and maximum ratio of the time.
_STREAMING = {10: 3, 100: 3, 1_000: 50, 10_000: 300}
_DIRECT = {100: 3, 1_000: 1, 10_000: 1}
_MATCHES = 3
_FILES, _LINES = 4, 10_000
_PUBLISHES = 100
_PROMOTED = {Type: "type", Port: "port", Country: "country", Amount: "amount", Priority: "priority"}
OURS, PEER = "Postroom, streaming lane", "RabbitMQ, headers exchange"


def measure() -> Iterator[Result]:
    """Yield a result for each number of subscriptions and lane."""
    if not rabbitmq.is_installed():
        for size in _STREAMING:
            yield _streaming_result(size, None, "rabbitmq-server is not installed")
        for size in _DIRECT:
            yield _direct_result(size, None, "rabbitmq-server is not installed")
        return
    with (
        rabbitmq.broker() as port,
        Peer(port) as peer,
        measured_box(promote=_PROMOTED, subscriptions=0) as box,
        connect(box.url, user=box.host.role_name) as connection,
        open_session(box.home, master="local[2]") as session,
    ):
        login = Login(url=box.url, user=box.host.role_name)
        query = start_stream(session, box.location, login=login, home=box.home)
        try:
            yield from _Comparison(box, DirectAgent(connection, box.host, RoutingTable()), peer).measure()
        finally:
            query.stop()


_TestMessage = tuple[Mapping[Property, Value], bytes]


class _Comparison:
    """A MessageBox and a broker with the same subscriptions."""

    def __init__(self, box: MeasuredBox, agent: DirectAgent, peer: Peer) -> None:
        self._box = box
        self._agent = agent
        self._peer = peer

    def measure(self) -> Iterator[Result]:
        before = 0
        for size in _STREAMING:
            self._subscribe(range(before, size))
            before = size
            messages = _make_messages(size // _MATCHES)
            self._peer.load([(_to_headers(promoted), body) for promoted, body in messages])
            yield self._measure_streaming_lane(size, messages)
            if size in _DIRECT:
                yield self._measure_direct_lane(size, messages)

    def _subscribe(self, numbers: range) -> None:
        subscribed = [_PAIRS[number // _MATCHES] for number in numbers]
        with self._box.connection.transaction():
            for number, (type, port) in zip(numbers, subscribed, strict=True):
                self._box.subscribe(number, (Type == type) & (Port == port))
        self._peer.bind([_to_headers({Type: type, Port: port}) for type, port in subscribed])

    def _measure_streaming_lane(self, size: int, messages: Sequence[_TestMessage]) -> Result:
        contents = [
            b"\n".join(messages[number % len(messages)][1] for number in range(at, at + _LINES))
            for at in range(0, _FILES * _LINES, _LINES)
        ]
        figures = measure_alternately(lambda: stream(self._box, contents, _FILES * _LINES), self._peer.stream)
        ours, theirs = (statistics.median(side) for side in zip(*figures, strict=True))
        detail = (
            f"{ours:,.0f} against {theirs:,.0f} messages/s; the peer with connections: {self._peer.measured_speeds}"
        )
        return _streaming_result(size, figures, detail)

    def _measure_direct_lane(self, size: int, messages: Sequence[_TestMessage]) -> Result:
        figures = measure_alternately(lambda: self._measure_publish(messages), self._peer.publish)
        ours, theirs = (1000 * statistics.median(side) for side in zip(*figures, strict=True))
        return _direct_result(size, figures, f"{ours:.2f} against {theirs:.2f} ms")

    def _measure_publish(self, messages: Sequence[_TestMessage]) -> float:
        created = [Message.of(body, promoted=promoted) for promoted, body in messages[:_PUBLISHES]]
        times = [seconds(lambda one=one: self._agent.publish([one])) for one in created]  # type: ignore[misc]
        self._box.empty()
        return statistics.median(times)


#: Pairs of type and port. The first *n* pairs have about 2.5 times as many types as ports, as in W.
_GRID = sorted(
    ((type, port) for type in range(100) for port in range(40)), key=lambda pair: max(2 * pair[0], 5 * pair[1])
)
_PAIRS = [(f"http://example.org/orders#type{type}", f"Port{port}") for type, port in _GRID]


def _make_messages(pairs: int) -> list[_TestMessage]:
    """Return the messages of one file. Each has one of the first ``pairs``."""
    rng = random.Random(7)
    messages: list[_TestMessage] = []
    for _ in range(_LINES):
        type, port = _PAIRS[rng.randrange(pairs)]
        country, amount, priority = f"C{rng.randrange(50)}", rng.randrange(1_000_000), rng.randrange(PRIORITIES)
        promoted: dict[Property, Value] = {Type: type, Port: port, Country: country, Amount: amount, Priority: priority}
        fields = {_PROMOTED[prop]: value for prop, value in promoted.items()}
        messages.append((promoted, pad_json(json.dumps(fields)[:-1])))
    return messages


def _to_headers(promoted: Mapping[Property, Value]) -> dict[str, Value]:
    return {prop.name: value for prop, value in promoted.items()}


def _streaming_result(size: int, figures: list[tuple[float, float]] | None, detail: str) -> Result:
    ratio, spread = (None, None) if figures is None else compute_ratio(figures)
    curves = {}
    if figures is not None:
        ours, theirs = (1 / statistics.median(side) for side in zip(*figures, strict=True))
        curves = {OURS: {size: ours}, PEER: {size: theirs}}
    return Result(
        name=f"streaming lane at {size:,} subscriptions against RabbitMQ's headers exchange, messages/s",
        group="B",
        measured=ratio,
        bar=_STREAMING[size],
        spread=spread,
        detail=detail,
        curves=curves,
    )


def _direct_result(size: int, figures: list[tuple[float, float]] | None, detail: str) -> Result:
    ratio, spread = (None, None) if figures is None else compute_ratio(figures)
    return Result(
        name=f"direct lane at {size:,} subscriptions against RabbitMQ's headers exchange, median of awaited publishes",
        group="B",
        measured=ratio,
        bar=_DIRECT[size],
        at_most=True,
        spread=spread,
        detail=detail,
    )


if __name__ == "__main__":
    import sys

    for result in measure():
        sys.stdout.write(f"{result}\n")
        sys.stdout.flush()
