"""Check the order of arrivals at ordered ports."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence

from tests.support.delivery_chaos.record import Arrival, Order, Record

#: The paths of the receiver that ordered ports send to.
ORDERED = ("ordered", "ledger", "rates")


def find_disorder(record: Record) -> list[str]:
    """Describe what arrived at an ordered port out of order, or not as the message that arrived before."""
    orders = {order.number: order for order in record.orders}
    problems = []
    for port in ORDERED:
        arrivals = record.arrivals[port]
        found = {
            "arrived after a later message": find_late(arrivals),
            "arrived before the message ahead was accepted": find_overtaking(arrivals),
            "arrived after a message that was published later": find_published_earlier(arrivals, orders),
            "arrived again with another message id or sequence number": find_changed(arrivals),
        }
        problems += [
            f"{len(numbers):,} messages of {port} {what}, such as {sorted(numbers)[:5]}"
            for what, numbers in found.items()
            if numbers
        ]
    return problems


def find_late(arrivals: Sequence[Arrival]) -> set[int]:
    """Return the numbers whose first arrival was after that of a higher sequence number."""
    highest, late = -1, set()
    for arrival in find_first(arrivals):
        assert arrival.sequence is not None
        if arrival.sequence < highest:
            late.add(arrival.number)
        highest = max(highest, arrival.sequence)
    return late


def find_overtaking(arrivals: Sequence[Arrival]) -> set[int]:
    """Return the numbers whose first arrival was before all earlier arrivals were accepted."""
    waiting: set[int] = set()
    accepted: set[int] = set()
    seen: set[int] = set()
    overtaking = set()
    for arrival in arrivals:
        if arrival.number not in seen and waiting:
            overtaking.add(arrival.number)
        seen.add(arrival.number)
        if arrival.is_accepted:
            accepted.add(arrival.number)
            waiting.discard(arrival.number)
        elif arrival.number not in accepted:
            waiting.add(arrival.number)
    return overtaking


def find_published_earlier(arrivals: Sequence[Arrival], orders: dict[int, Order]) -> set[int]:
    """Return the numbers whose first arrival was after that of an order whose publish started when theirs had ended, or
    that is a later one of the same publisher."""
    latest_start = -1.0
    latest: dict[int, int] = {}
    late = set()
    for order in [orders[arrival.number] for arrival in find_first(arrivals) if arrival.number in orders]:
        if order.ended < latest_start or order.number < latest.get(order.publisher, -1):
            late.add(order.number)
        latest_start = max(latest_start, order.started)
        latest[order.publisher] = max(order.number, latest.get(order.publisher, -1))
    return late


def find_changed(arrivals: Sequence[Arrival]) -> set[int]:
    """Return the numbers that arrived as different messages, or whose message or sequence number is that of another."""
    keys: tuple[Callable[[Arrival], object], ...] = (
        lambda arrival: ("number", arrival.number),
        lambda arrival: ("message", arrival.message_id),
        lambda arrival: ("sequence", arrival.sequence),
    )
    identities: defaultdict[object, set[object]] = defaultdict(set)
    changed = set()
    for arrival in arrivals:
        for key in keys:
            same = identities[key(arrival)]
            same.add((arrival.number, arrival.message_id, arrival.sequence))
            if len(same) > 1:
                changed.add(arrival.number)
    return changed


def find_first(arrivals: Sequence[Arrival]) -> list[Arrival]:
    """Return the first arrival of each number."""
    return list({arrival.number: arrival for arrival in reversed(arrivals)}.values())[::-1]
