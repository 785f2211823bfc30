"""What ``postroom demo procurement`` sends to the orchestration, and the result that it expects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from postroom.example_applications import Act, Step, drop_files


def steps() -> Iterator[Step]:
    """Order 1 is bought, order 2 is refused by the cheapest supplier, and order 3 gets no offer in time."""
    waits = {"1": 3_600, "2": 3_600, "3": 1}
    asked = {
        "out/acme": Counter(_write(order, "request") for order in waits),
        "out/bolt": Counter(_write(order, "request") for order in waits),
        "out/buyer": Counter([_write("3", "failed", reason="no offer in time")]),
    }
    orders = [_write(order, "order", wait_seconds=seconds) for order, seconds in waits.items()]
    yield Step(what="3 orders dropped; both suppliers are asked", act=_drop("order", orders), outputs=asked)

    prices = {("1", "acme"): 90, ("1", "bolt"): 80, ("2", "acme"): 70, ("2", "bolt"): 75}
    offers = [_write(order, "offer", supplier=name, price=price) for (order, name), price in prices.items()]
    chosen = asked | {
        "out/acme": asked["out/acme"] + Counter([_write("2", "purchase")]),
        "out/bolt": asked["out/bolt"] + Counter([_write("1", "purchase")]),
        "out/budget": Counter([_write("1", "reserve", price=80), _write("2", "reserve", price=70)]),
    }
    yield Step(what="4 offers dropped; the cheapest ones are taken", act=_drop("offer", offers), outputs=chosen)

    confirmations = [_write(order, "confirmation", accepted=order == "1") for order in "12"]
    bought = _write("1", "bought", supplier="bolt", price=80)
    refused = _write("2", "failed", reason="acme has refused")
    yield Step(
        what="2 confirmations dropped; one of them is a refusal",
        act=_drop("confirmation", confirmations),
        outputs=chosen
        | {
            "out/budget": chosen["out/budget"] + Counter([_write("2", "release", price=70)]),
            "out/buyer": chosen["out/buyer"] + Counter([bought, refused]),
        },
    )


def _drop(name: str, contents: list[bytes]) -> Act:
    return drop_files("documents", {f"{name}-{number}.json": content for number, content in enumerate(contents)})


def _write(order: str, kind: str, **values: object) -> bytes:
    return json.dumps({"kind": kind, "order": order, **values}).encode()
