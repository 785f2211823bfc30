"""What ``postroom demo http`` posts, and the result that it expects."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import urllib3

from postroom.errors import Unavailable
from postroom.example_applications import Step
from postroom.messagebox.connection import Connection

COUNTRIES = ["FR", "DE", "FR", "IT", "ES", "FR", "DE", "FR"]
_PATIENCE_SECONDS = 60.0


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
    port = int(os.environ.get("PORT", "8080"))
    with urllib3.PoolManager(retries=False) as pool:
        for number, country in enumerate(COUNTRIES):
            for _again in range(2):
                _send(pool, f"http://127.0.0.1:{port}/orders", _order(number, country), f"order-{number}")


def _send(pool: urllib3.PoolManager, url: str, order: bytes, key: str) -> None:
    """Post until the server is there and has accepted the order."""
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            response = pool.request("POST", url, body=order, headers={"Idempotency-Key": key})
            if response.status == 202:
                return
            answer = f"{response.status} {response.reason}"
        except urllib3.exceptions.HTTPError as error:
            answer = str(error)
        if time.monotonic() > deadline:
            raise Unavailable(f"{url} does not accept orders.", why=answer)
        time.sleep(0.2)


def _order(number: int, country: str) -> bytes:
    return json.dumps({"order": number, "country": country}).encode()
