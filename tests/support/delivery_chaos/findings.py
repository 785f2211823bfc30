"""Compare what arrived with what was published."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tests.support.delivery_chaos.answers import TWO_WAY, find_wrong_answers
from tests.support.delivery_chaos.order import find_disorder
from tests.support.delivery_chaos.record import Arrival, Fault, Order, Record

#: A claim is lost some seconds after its host instance was killed or cut off, while the message is being sent.
_EFFECT_SECONDS = 15.0
#: A host instance without a fault completes a message within this time after it was accepted, also on a slow machine.
_COMPLETE_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class _Subscriber:
    """Who receives the orders that match, as the application declares it. A program has no host."""

    matches: Callable[[Order], bool]
    host: str | None = None


_SUBSCRIBERS = {
    "europe": _Subscriber(host="Main", matches=lambda order: order.region == "EU"),
    "front": _Subscriber(host="Front", matches=lambda order: order.total >= 50),
    "ordered": _Subscriber(host="Main", matches=lambda order: order.priority == 1),
    "ledger": _Subscriber(host="Front", matches=lambda order: order.region == "US"),
    "program": _Subscriber(matches=lambda order: order.total < 50),
}


def find_problems(record: Record, responses: Iterable[Mapping[str, object]]) -> list[str]:
    """Describe what was lost, sent to the wrong subscriber, repeated without a reason, out of order or answered wrong.
    ``responses`` are the published ones."""
    problems = [*record.problems, *find_disorder(record), *find_wrong_answers(record, responses)]
    for name, subscriber in _SUBSCRIBERS.items():
        expected = {order.number for order in record.orders if subscriber.matches(order)}
        arrivals = record.arrivals[name]
        arrived = {arrival.number for arrival in arrivals}
        accepted = {arrival.number for arrival in arrivals if arrival.is_accepted}
        problems += _describe(f"did not arrive at {name}", expected - accepted)
        problems += _describe(f"arrived at {name}, which does not subscribe to them", arrived - expected)
    senders = {name: subscriber.host for name, subscriber in _SUBSCRIBERS.items()} | dict.fromkeys(TWO_WAY, "Main")
    for name, host in senders.items():
        faults = [fault for fault in record.faults if fault.host in (host, None)]
        repeats = find_unexplained(record.arrivals[name], faults)
        problems += _describe(f"were repeated at {name} without a fault", repeats)
    return problems


def find_unexplained(arrivals: Sequence[Arrival], faults: Sequence[Fault]) -> set[int]:
    """Return the numbers that arrived again after they were accepted, although the host instance that had sent them
    before had no fault."""
    accepted: defaultdict[int, list[Arrival]] = defaultdict(list)
    unexplained = set()
    for arrival in arrivals:
        before = accepted[arrival.number]
        if before and not any(_explains(fault, sent, arrival) for fault in faults for sent in before):
            unexplained.add(arrival.number)
        if arrival.is_accepted:
            before.append(arrival)
    return unexplained


def _explains(fault: Fault, accepted: Arrival, repeat: Arrival) -> bool:
    """Return True if the sender of the accepted message has lost its claim by this fault before it could complete the
    message, or if the sender of the repeat had lost its claim and did not know it yet."""
    if fault.pid in (None, accepted.sender) or accepted.sender is None:
        completed = accepted.at + _COMPLETE_SECONDS
        if fault.started < min(repeat.at, completed) and fault.ended + _EFFECT_SECONDS > accepted.at:
            return True
    is_late = fault.pid is None or fault.pid == repeat.sender or repeat.sender is None
    return is_late and fault.started < repeat.at < fault.ended + _EFFECT_SECONDS


def count_repeats(record: Record) -> int:
    """Return how many arrivals were repeats."""
    return sum(
        times - 1
        for arrivals in record.arrivals.values()
        for times in Counter(arrival.number for arrival in arrivals).values()
    )


def _describe(what: str, numbers: set[int]) -> list[str]:
    return [f"{len(numbers):,} messages {what}, such as {sorted(numbers)[:5]}"] if numbers else []
