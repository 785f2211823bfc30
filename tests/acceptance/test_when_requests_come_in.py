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
from tests.support.waiting import PATIENCE, wait_until

pytestmark = pytest.mark.xdist_group("receiving")


def post(url: str, body: bytes, key: str) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(url, data=body, headers={"Idempotency-Key": key}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_what_was_accepted_arrives_once_and_too_much_is_refused_for_a_while(
    receiving_house: House, web_port: int
) -> None:
    house, url = receiving_house, f"http://127.0.0.1:{web_port}/orders"
    assert house.database is not None
    host = house.start_host()

    def is_open() -> bool:
        with suppress(OSError):
            socket.create_connection(("127.0.0.1", web_port)).close()
            return True
        return False

    def shown() -> dict[str, Any]:
        [one] = [one for one in house.ask("pipeline", "show") if one["location"] == "web"]
        return dict(one)

    wait_until(is_open, what="an open port")
    first, second = (b'{"region": "US", "priority": %d}' % number for number in (1, 2))
    with psycopg.connect(house.database, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(7001, 0)")
        status, accepted = post(url, first, "order-1")
        assert status == 202
        # Nothing is published yet, and the sender has its answer all the same; it may ask again.
        assert post(url, first, "order-1") == (202, accepted)
        assert shown()["waiting"] == 1
        connection.execute("SELECT pg_advisory_unlock(7001, 0)")
        assert house.wait_for_files("out/web", 1) == [first]
        assert post(url, first, "order-1") == (202, accepted)
        wait_until(lambda: shown()["published"] == 1, what="a location that tells what it has published")

        connection.execute("UPDATE management.load SET queued = 60000, measured_at = 'infinity'")
        wait_until(lambda: shown()["state"] == "throttled", what="a location that says that it is slowed down")
        assert shown()["reason"].startswith("60,000 messages wait in the queues; the threshold is 50,000")
        status, refused = post(url, second, "order-2")
        assert status == 503
        assert "60,000 messages wait" in refused["error"]
        connection.execute("UPDATE management.load SET queued = 0, measured_at = '-infinity'")
    wait_until(lambda: post(url, second, "order-2")[0] == 202, what="an open location")
    assert sorted(house.wait_for_files("out/web", 2)) == [first, second]
    wait_until(lambda: shown()["state"] == "receiving", what="a location that is not slowed down")
    assert shown()["waiting"] == 0
    host.stop()
    house.run("jobs", "run")
