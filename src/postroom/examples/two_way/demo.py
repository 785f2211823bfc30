"""What ``postroom demo two_way`` asks, and the result that it expects."""

from __future__ import annotations

import json
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import urllib3

from postroom.errors import StateError, Unavailable
from postroom.example_applications import Step
from postroom.examples.two_way.pricing import PRICES, make_server
from postroom.messagebox.connection import Connection

PRODUCTS = ["apple", "pear", "plum", "apple", "unicorn", "plum", "pear", "apple"]
_PATIENCE_SECONDS = 60.0


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
    """Ask for a price as soon as the location is there. Return the status and the body of the response."""
    url = f"http://127.0.0.1:{os.environ.get('PORT', '8080')}/quotes"
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            response = http.request("POST", url, body=json.dumps({"product": product}).encode())
            if response.status not in (404, 503):
                return response.status, response.data
            answer = f"{response.status} {response.reason}"
        except urllib3.exceptions.HTTPError as error:
            answer = str(error)
        if time.monotonic() > deadline:
            raise Unavailable(f"{url} does not answer.", why=answer)
        time.sleep(0.2)


def _price(product: str) -> bytes:
    return json.dumps({"product": product, "price": PRICES[product]}).encode()
