"""Compare what the instances did with what they were sent."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import psycopg

from tests.support.procurement_chaos.suppliers import SUPPLIERS, Offer, OrderPlan, Programs

_ROUTED = """
    SELECT d.kind, d.number, d.content, p.name, count(*)
      FROM account.documents d LEFT JOIN account.routed r USING (message_id)
      LEFT JOIN management.send_ports p ON p.id = r.service_id
     WHERE d.kind NOT IN ('order', 'offer', 'confirmation') GROUP BY d.message_id, 1, 2, 3, 4
"""
_REMAINING = """
    SELECT q.error_code, d.kind, d.number FROM messagebox.suspended_queue q JOIN account.documents d USING (message_id)
"""
_TABLES = (
    "orchestration_instances",
    "orchestration_journal",
    "orchestration_messages",
    "subscriptions WHERE instance_id IS NOT NULL AND removed_at IS NULL",
    "work_queue",
    "scheduled_queue",
)
#: What an instance has left when it ended without having received all of its messages.
ZOMBIE = "0xC0C01B4C"


@dataclass(kw_only=True)
class Account:
    """What the triggers have recorded, by order."""

    sent: Mapping[int, Counter[tuple[str, str | None]]]
    """How often a document of a kind was routed to a port."""
    chosen: Mapping[int, int]
    """The price that was reserved."""
    reasons: Mapping[int, str]
    """Why an order has failed."""
    started: Mapping[int, float]
    """When the instance of an order has started to wait."""
    timeouts: frozenset[int]
    """The orders whose instance has stopped waiting for offers. Its last turn is not stored, but has a reason."""
    remaining: list[tuple[str, str, int]]
    """The rows that are left: their error, and the kind and the order of their message."""
    rows: Mapping[str, int] = field(default_factory=dict)
    """The number of rows that are left in tables that have to be empty."""

    @classmethod
    def read(cls, url: str) -> Account:
        sent: dict[int, Counter[tuple[str, str | None]]] = defaultdict(Counter)
        chosen, reasons = {}, {}
        with psycopg.connect(url, autocommit=True) as connection:
            for kind, number, content, port, count in connection.execute(_ROUTED):
                sent[number][kind, port] += count
                if kind == "reserve":
                    chosen[number] = content["price"]
                if kind == "failed":
                    reasons[number] = content["reason"]
            events = connection.execute("SELECT kind, number, extract(epoch FROM time) FROM account.events").fetchall()
            remaining = connection.execute(_REMAINING).fetchall()
            rows = {table: _count(connection, table) for table in _TABLES}
        started = {number: float(time) for kind, number, time in events if kind == "started"}
        timeouts = {number for kind, number, _ in events if kind == "timer"}
        timeouts |= {number for number, reason in reasons.items() if reason == "no offer in time"}
        return cls(
            sent=sent,
            chosen=chosen,
            reasons=reasons,
            started=started,
            timeouts=frozenset(timeouts),
            remaining=remaining,
            rows=rows,
        )


def find_problems(programs: Programs, account: Account) -> list[str]:
    """Describe each order that was not handled exactly once, and each row that is left without a reason."""
    problems = [*programs.problems, *(f"{count} rows in {table}" for table, count in account.rows.items() if count)]
    for plan in programs.plans.values():
        problems += [f"order {plan.number}: {text}" for text in _find_problems_of(plan, programs, account)]
    for code, kind, number in account.remaining:
        if (code, kind) != (ZOMBIE, "offer") or number not in account.timeouts:
            problems.append(f"order {number}: a message of kind {kind} is suspended with {code} and no timeout")
    return problems


def _find_problems_of(plan: OrderPlan, programs: Programs, account: Account) -> Iterator[str]:
    number = plan.number
    in_time = [offer for offer in plan.offers if _is_in_time(plan, offer, programs, account)]
    refused = [
        offer.supplier
        for offer in plan.offers
        if (found := programs.published.get(f"offer {number} {offer.supplier}")) is not None and not found.is_routed
    ]
    is_timed_out = number in account.timeouts
    if len(in_time) == len(SUPPLIERS) and is_timed_out:
        yield "it has a timeout, although all offers came in time"
    if refused and not is_timed_out:
        yield f"the offers of {refused} had no subscriber, without a timeout"
    price = account.chosen.get(number)
    if in_time and price is None:
        yield "offers came in time, and none was chosen"
    if price is not None and price > min((offer.price for offer in in_time), default=price):
        yield f"a price of {price} was chosen, although a lower one came in time"
    # Two suppliers may have the same price.
    expected = [_expect(plan, price, offer.supplier) for offer in plan.offers if price in (None, offer.price)] or [
        _expect(plan, None, "")
    ]
    if (sent := account.sent.get(number, Counter())) not in expected:
        yield f"it has sent {_format(sent)} instead of {_format(expected[0])}"


def _is_in_time(plan: OrderPlan, offer: Offer, programs: Programs, account: Account) -> bool:
    """Return True if an offer was published before the instance could stop waiting for it."""
    started = account.started.get(plan.number)
    published = programs.published.get(f"offer {plan.number} {offer.supplier}")
    return started is not None and published is not None and published.ended < started + plan.wait_seconds


def _expect(plan: OrderPlan, price: int | None, supplier: str) -> Counter[tuple[str, str | None]]:
    """Return what the instance has to send: each document once, to one port."""
    expected: Counter[tuple[str, str | None]] = Counter(("request", supplier) for supplier in SUPPLIERS)
    if price is None:
        return expected + Counter([("failed", "buyer")])
    expected += Counter([("reserve", "budget"), ("purchase", supplier)])
    if plan.is_accepted:
        return expected + Counter([("bought", "buyer")])
    return expected + Counter([("release", "budget"), ("failed", "buyer")])


def _format(sent: Counter[tuple[str, str | None]]) -> str:
    return ", ".join(f"{count} {kind} to {port}" for (kind, port), count in sorted(sent.items(), key=str))


def _count(connection: psycopg.Connection[Any], table: str) -> int:
    row = connection.execute(f"SELECT count(*) FROM messagebox.{table}".encode()).fetchone()
    return 0 if row is None else int(row[0])
