"""Both lanes side by side with RabbitMQ's headers exchange, from 10 to 10,000 subscriptions; a message meets three.

    python -m bench.headers_exchange

W equal: subscriptions ask for a type and a port, here by a filter, there by headers and ``x-match: all``. Messages have
five properties and 1 KB. Both sides have both cores. Streaming: from claimed files to committed rows, against the
number of connections that is best for the peer, with a thousand unconfirmed messages. Direct: one message at a time,
each confirm awaited.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence

from bench import rabbitmq
from bench.messagebox import MeasuredBox, measured_box, padded
from bench.peer import Peer
from bench.ratios import Result, in_turn, ratio_of, seconds
from bench.streaming import stream
from bench.workload import PRIORITIES, Amount, Country, Port, Priority, Type
from postroom.agent.direct.message_agent import MessageAgent
from postroom.agent.routing.table import RoutingTable
from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.properties import Property
from postroom.spark.login import Login
from postroom.spark.receive.stream import start_stream
from postroom.spark.session import open_session
from postroom.values import Value

#: By number of subscriptions: how many times the peer's throughput, and how many times its time at most.
_STREAMING = {10: 3, 100: 3, 1_000: 50, 10_000: 300}
_DIRECT = {100: 3, 1_000: 1, 10_000: 1}
_MATCHES = 3
_FILES, _LINES = 4, 10_000
_PUBLISHES = 100
_PROMOTED = {Type: "type", Port: "port", Country: "country", Amount: "amount", Priority: "priority"}
OURS, PEER = "Postroom, streaming lane", "RabbitMQ, headers exchange"


def measure() -> Iterator[Result]:
    """A row for each number of subscriptions and lane."""
    if not rabbitmq.is_installed():
        for size in _STREAMING:
            yield _streaming(size, None, "rabbitmq-server is not installed")
        for size in _DIRECT:
            yield _direct(size, None, "rabbitmq-server is not installed")
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
            yield from _Sides(box, MessageAgent(connection, box.host, RoutingTable()), peer).measure()
        finally:
            query.stop()


_Sent = tuple[Mapping[Property, Value], bytes]


class _Sides:
    """A MessageBox and a broker that get the same subscriptions."""

    def __init__(self, box: MeasuredBox, agent: MessageAgent, peer: Peer) -> None:
        self._box = box
        self._agent = agent
        self._peer = peer

    def measure(self) -> Iterator[Result]:
        before = 0
        for size in _STREAMING:
            self._subscribe(range(before, size))
            before = size
            messages = _messages(size // _MATCHES)
            self._peer.load([(_headers(promoted), body) for promoted, body in messages])
            yield self._streaming_lane(size, messages)
            if size in _DIRECT:
                yield self._direct_lane(size, messages)

    def _subscribe(self, numbers: range) -> None:
        wanted = [_PAIRS[number // _MATCHES] for number in numbers]
        with self._box.connection.transaction():
            for number, (type, port) in zip(numbers, wanted, strict=True):
                self._box.subscribe(number, (Type == type) & (Port == port))
        self._peer.bind([_headers({Type: type, Port: port}) for type, port in wanted])

    def _streaming_lane(self, size: int, messages: Sequence[_Sent]) -> Result:
        contents = [
            b"\n".join(messages[number % len(messages)][1] for number in range(at, at + _LINES))
            for at in range(0, _FILES * _LINES, _LINES)
        ]
        figures = in_turn(lambda: stream(self._box, contents, _FILES * _LINES), self._peer.stream)
        ours, theirs = (statistics.median(side) for side in zip(*figures, strict=True))
        detail = f"{ours:,.0f} against {theirs:,.0f} messages/s; the peer with connections: {self._peer.tried}"
        return _streaming(size, figures, detail)

    def _direct_lane(self, size: int, messages: Sequence[_Sent]) -> Result:
        figures = in_turn(lambda: self._publish(messages), self._peer.publish)
        ours, theirs = (1000 * statistics.median(side) for side in zip(*figures, strict=True))
        return _direct(size, figures, f"{ours:.2f} against {theirs:.2f} ms")

    def _publish(self, messages: Sequence[_Sent]) -> float:
        made = [Message.of(body, promoted=promoted) for promoted, body in messages[:_PUBLISHES]]
        times = [seconds(lambda one=one: self._agent.publish([one])) for one in made]  # type: ignore[misc]
        self._box.empty()
        return statistics.median(times)


#: Types and ports in an order in which the first *n* pairs have about 2.5 times as many types as ports, as W has.
_GRID = sorted(
    ((type, port) for type in range(100) for port in range(40)), key=lambda pair: max(2 * pair[0], 5 * pair[1])
)
_PAIRS = [(f"http://example.org/orders#type{type}", f"Port{port}") for type, port in _GRID]


def _messages(pairs: int) -> list[_Sent]:
    """As many as go into a file, each of one of the first pairs."""
    dice = random.Random(7)
    messages: list[_Sent] = []
    for _ in range(_LINES):
        type, port = _PAIRS[dice.randrange(pairs)]
        country, amount, priority = f"C{dice.randrange(50)}", dice.randrange(1_000_000), dice.randrange(PRIORITIES)
        promoted: dict[Property, Value] = {Type: type, Port: port, Country: country, Amount: amount, Priority: priority}
        fields = {_PROMOTED[prop]: value for prop, value in promoted.items()}
        messages.append((promoted, padded(json.dumps(fields)[:-1])))
    return messages


def _headers(promoted: Mapping[Property, Value]) -> dict[str, Value]:
    return {prop.name: value for prop, value in promoted.items()}


def _streaming(size: int, figures: list[tuple[float, float]] | None, detail: str) -> Result:
    ratio, spread = (None, None) if figures is None else ratio_of(figures)
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


def _direct(size: int, figures: list[tuple[float, float]] | None, detail: str) -> Result:
    ratio, spread = (None, None) if figures is None else ratio_of(figures)
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
