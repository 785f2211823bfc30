"""What ``postroom demo two_way`` asks, and the result that it expects."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import urllib3

from postroom.errors import StateError
from postroom.example_applications import Step, post_when_ready
from postroom.examples.two_way.pricing import PRICES, make_server
from postroom.messagebox.connection import Connection

PRODUCTS = ["apple", "pear", "plum", "apple", "unicorn", "plum", "pear", "apple"]


def steps() -> Iterator[Step]:
    """Eight clients ask at once. The pricing service does not know one of the products."""
    yield Step(
        what=f"{len(PRODUCTS)} clients ask for a price",
        act=_ask_all,
        outputs={"out/prices": Counter(_price(product) for product in PRODUCTS if product in PRICES)},
        suspended=Counter({"DELIVERY": 1}),
    )


def _ask_all(_: Path, __: Connection) -> None:
    with _run_pricing(), urllib3.PoolManager(retries=False) as http, ThreadPoolExecutor(len(PRODUCTS)) as pool:
        answers = pool.map(lambda product: _ask(http, product), PRODUCTS)
        for product, (status, body) in zip(PRODUCTS, answers, strict=True):
            expected = (200, _price(product)) if product in PRICES else (502, body)
            if (status, body) != expected:
                raise StateError(f"The client that asked for {product} got {status} {body!r}.")


@contextmanager
def _run_pricing() -> Iterator[None]:
    """Run the pricing service in a thread."""
    with make_server() as server:
        thread = threading.Thread(target=server.serve_forever, name="pricing")
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _ask(http: urllib3.PoolManager, product: str) -> tuple[int, bytes]:
    """Ask for a price. Return the status and the body of the response."""
    response = post_when_ready(http, "/quotes", json.dumps({"product": product}).encode())
    return response.status, response.data


def _price(product: str) -> bytes:
    return json.dumps({"product": product, "price": PRICES[product]}).encode()
