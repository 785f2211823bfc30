"""What ``postroom demo lookup`` sends, and the result that it expects."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from postroom.example_applications import Step, drop_files
from postroom.messagebox.connection import Connection

CUSTOMERS = {"C-17": ("Acme", "Paris"), "C-18": ("Bolt", "Turin"), "C-19": ("Corner", "Oslo")}
MOVED = {"C-17": ("Acme", "Lyon")}
#: Nobody has published C-20.
ORDERS = ["C-17", "C-18", "C-17", "C-20"]


def steps() -> Iterator[Step]:
    """Orders get the address of their customer. Then a customer moves, and the next orders get the new address."""
    customers = Counter(_customer(key, CUSTOMERS) for key in CUSTOMERS)
    yield Step(
        what=f"{len(CUSTOMERS)} customers dropped",
        act=drop_files("customers", {"customers.jsonl": b"\n".join(customers)}),
        outputs={"out/customers": customers},
    )
    deliveries = Counter(_delivery(number, CUSTOMERS) for number in range(len(ORDERS)))
    yield Step(
        what=f"{len(ORDERS)} orders dropped, one of them of an unknown customer",
        act=drop_files("shop", {f"order-{n}.json": _order(n) for n in range(len(ORDERS))}),
        outputs={"out/customers": customers, "out/deliveries": deliveries},
    )
    customers = customers + Counter(_customer(key, MOVED) for key in MOVED)
    yield Step(
        what=f"{len(MOVED)} customer moves",
        act=drop_files("customers", {"moved.jsonl": b"\n".join(_customer(key, MOVED) for key in MOVED)}),
        outputs={"out/customers": customers, "out/deliveries": deliveries},
    )
    deliveries = deliveries + Counter(_delivery(number, {**CUSTOMERS, **MOVED}) for number in range(len(ORDERS)))
    yield Step(
        what=f"{len(ORDERS)} orders dropped again",
        act=_drop_orders_again,
        outputs={"out/customers": customers, "out/deliveries": deliveries},
    )


def _drop_orders_again(home: Path, connection: Connection) -> None:
    time.sleep(1)  # every process has the new address then
    drop_files("shop", {f"again-{n}.json": _order(n) for n in range(len(ORDERS))})(home, connection)


def _customer(key: str, customers: dict[str, tuple[str, str]]) -> bytes:
    name, city = customers[key]
    return json.dumps({"id": key, "name": name, "city": city}).encode()


def _order(number: int) -> bytes:
    return json.dumps({"order": number, "customer": ORDERS[number]}).encode()


def _delivery(number: int, customers: dict[str, tuple[str, str]]) -> bytes:
    name, city = customers.get(ORDERS[number], ("unknown", ""))
    return json.dumps({"order": number, "customer": ORDERS[number], "name": name, "city": city}).encode()
