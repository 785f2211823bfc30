"""From an HTTP request through the inbox and the receive pipeline on Spark to a subscriber; THR-04, THR-05."""

from __future__ import annotations

import json
import socket
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from tests.support.house import House
from tests.support.waiting import wait_until

pytestmark = pytest.mark.timeout(600)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def post(url: str, body: bytes, key: str) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(url, data=body, headers={"Idempotency-Key": key}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_what_was_accepted_arrives_once_and_too_much_is_refused_for_a_while(house: House) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}/orders"
    house.apply(
        f"""
        orders = pipelines.Json(promote=PROMOTE)
        app.receive_port("Web").location("web", adapters.HttpReceive("/orders", port={port}), pipeline=orders)
        app.send_port("Europe", adapters.File("out"), filter=Region == "EU")
        """
    )
    assert house.database is not None
    house.start_host()

    def is_open() -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", port), timeout=5).close()
            return True
        return False

    wait_until(is_open, 60, what="an open port")
    first = b'{"region": "EU", "priority": 1}'
    status, accepted = post(url, first, "order-1")
    assert status == 202
    # Nothing reads the inbox yet, and the sender has its answer all the same; it may ask again.
    assert post(url, first, "order-1") == (202, accepted)
    [listed] = house.ask("pipeline", "show")
    assert (listed["state"], listed["waiting"]) == ("not running", 1)

    house.start_pipeline()
    assert house.wait_for_files("out", 1, timeout=240) == [first]
    assert post(url, first, "order-1") == (202, accepted)

    def shown() -> dict[str, Any]:
        [one] = house.ask("pipeline", "show")
        return dict(one)

    wait_until(lambda: shown()["published"] == 1, 60, what="a location that tells what it has published")
    with psycopg.connect(house.database, autocommit=True) as connection:
        connection.execute("UPDATE management.load SET queued = 60000, measured_at = 'infinity'")
        wait_until(lambda: shown()["state"] == "throttled", 60, what="a location that says that it is slowed down")
        assert shown()["reason"].startswith("60,000 messages wait in the queues; the threshold is 50,000")
        status, refused = post(url, b'{"region": "EU", "priority": 2}', "order-2")
        assert status == 503
        assert "60,000 messages wait" in refused["error"]
        connection.execute("UPDATE management.load SET queued = 0, measured_at = '-infinity'")
    second = b'{"region": "EU", "priority": 2}'
    wait_until(lambda: post(url, second, "order-2")[0] == 202, 60, what="an open location")
    assert sorted(house.wait_for_files("out", 2, timeout=120)) == [first, second]
    wait_until(lambda: shown()["state"] == "receiving", 60, what="a location that is not slowed down")
    assert shown()["waiting"] == 0
