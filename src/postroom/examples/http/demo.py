"""What ``postroom demo http`` posts, and the result that it expects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import urllib3

from postroom.errors import StateError
from postroom.example_applications import Step, post_when_ready
from postroom.messagebox.connection import Connection

COUNTRIES = ["FR", "DE", "FR", "IT", "ES", "FR", "DE", "FR"]


def steps() -> Iterator[Step]:
    """Each order is posted twice under one key, as by a sender that did not get its answer."""
    orders = [_order(number, country) for number, country in enumerate(COUNTRIES)]
    yield Step(
        what=f"{len(orders)} orders posted, each of them twice",
        act=_post,
        outputs={
            "out/partner": Counter(order for order in orders if b"FR" in order),
            "out/shop": Counter(order for order in orders if b"FR" not in order),
        },
    )


def _post(_: Path, __: Connection) -> None:
    with urllib3.PoolManager(retries=False) as pool:
        for number, country in enumerate(COUNTRIES):
            for _again in range(2):
                key = {"Idempotency-Key": f"order-{number}"}
                response = post_when_ready(pool, "/orders", _order(number, country), headers=key)
                if response.status != 202:
                    raise StateError(f"Order {number} was answered with {response.status} {response.reason}.")


def _order(number: int, country: str) -> bytes:
    return json.dumps({"order": number, "country": country}).encode()
