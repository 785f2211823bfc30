"""What ``postroom demo orders`` sends, and where each order must go: the filters of app.py, written out by hand."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from postroom.example_applications import Act, Step, drop_files
from postroom.messagebox.connection import Connection
from postroom.operations.ports.send_ports import unenlist

WITH_AUDIT, WITHOUT_AUDIT, MALFORMED = 240, 80, 12


@dataclass(frozen=True, kw_only=True)
class Order:
    """One file, and the folders where it must end up."""

    name: str
    content: bytes
    folders: frozenset[str] = frozenset()
    is_malformed: bool = False


def steps() -> Iterator[Step]:
    """First malformed orders among good ones. Then orders without the send port Audit: some have no subscriber."""
    dice = random.Random(2026)
    first = [_order(dice, number, audited=True) for number in range(WITH_AUDIT)]
    first += [
        Order(name=f"broken-{number:03}.json", content=b'{"region": "EU", "total": 12', is_malformed=True)
        for number in range(MALFORMED)
    ]
    dice.shuffle(first)
    second = [_order(dice, WITH_AUDIT + number, audited=False) for number in range(WITHOUT_AUDIT)]

    def drop_second(home: Path, connection: Connection) -> None:
        unenlist(connection, "Audit")
        _drop(second)(home, connection)

    yield _step(f"{len(first)} orders dropped, {MALFORMED} of them malformed", _drop(first), first)
    yield _step(f"Audit unenlisted, {len(second)} more orders dropped", drop_second, first + second)


def _drop(orders: list[Order]) -> Act:
    return drop_files("in", {order.name: order.content for order in orders})


def _step(what: str, act: Act, orders: list[Order]) -> Step:
    suspended = Counter("PIPELINE" for order in orders if order.is_malformed)
    suspended += Counter("ROUTING" for order in orders if not order.folders and not order.is_malformed)
    return Step(
        what=what,
        act=act,
        outputs={
            folder: Counter(order.content for order in orders if folder in order.folders)
            for folder in ("out/europe", "out/big", "out/audit")
        },
        suspended=suspended,
    )


def _order(dice: random.Random, number: int, *, audited: bool) -> Order:
    region = dice.choice(["EU", "EU", "US", "ASIA", "TEST"])
    total = dice.choice([9.99, 250, 4999.5, 9999.99, 10000, 25000.75])
    priority = dice.choice([1, 2, 3, 4, 5])
    folders = set()
    if region == "EU":
        folders.add("out/europe")
    if (total >= 10_000 and region != "TEST") or priority == 1:
        folders.add("out/big")
    if audited:
        folders.add("out/audit")
    content = json.dumps({"order": number, "region": region, "total": total, "priority": priority}).encode()
    return Order(name=f"order-{number:03}.json", content=content, folders=frozenset(folders))
