"""ACC-01, ACC-20: from a folder through the receive pipeline on Spark."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.support.house import House
from tests.support.waiting import wait_until

pytestmark = pytest.mark.xdist_group("receiving")


@pytest.fixture
def connection(receiving_house: House) -> Iterator[psycopg.Connection]:
    assert receiving_house.database is not None
    with psycopg.connect(receiving_house.database, autocommit=True) as opened:
        yield opened


def count(connection: psycopg.Connection, query: str) -> int:
    row = connection.execute(query).fetchone()
    assert row is not None
    return int(row[0] or 0)


def test_every_port_whose_filter_matches_sends_identical_bytes_once(
    receiving_house: House, connection: psycopg.Connection
) -> None:
    """ACC-01."""
    house = receiving_house
    body = bytes(range(256)) * 100
    house.drop("random.bin", body, folder="any")
    queued = "SELECT count(*) FROM messagebox.work_queue"
    wait_until(lambda: count(connection, queued) == 2, what="two queue rows")
    assert count(connection, "SELECT count(*) FROM messagebox.spool") == 1
    assert count(connection, "SELECT count(*) FROM messagebox.parts") == 1
    references = (
        "SELECT sum(delta) FROM (TABLE messagebox.message_ref_count_log_1"
        " UNION ALL TABLE messagebox.message_ref_count_log_2) l"
    )
    assert count(connection, references) == 2
    host = house.start_host("Sender")
    assert house.wait_for_files("out/a", 1) == [body]
    assert house.wait_for_files("out/b", 1) == [body]
    wait_until(lambda: count(connection, queued) == 0, what="an empty queue")
    host.stop()
    house.run("jobs", "run")
    assert count(connection, "SELECT count(*) FROM messagebox.spool") == 0
    assert count(connection, "SELECT count(*) FROM messagebox.parts") == 0
    assert house.arrived("out/c") == []
    assert (len(house.arrived("out/a")), len(house.arrived("out/b"))) == (1, 1)
    wait_until(lambda: list((house.home / "any").glob("*.bin")) == [], what="an empty source folder")


def test_an_unroutable_message_goes_on_its_way_once_there_is_a_subscriber(receiving_house: House) -> None:
    """ACC-20."""
    house = receiving_house
    house.drop("order.json", b'{"region": "EU"}')
    [inbound] = wait_until(lambda: house.suspended("resumable"), what="the suspended order")
    [report] = house.suspended("not-resumable")
    assert report["service_class"] == "routing_failure_report"
    assert inbound["error_code"] == "ROUTING"
    house.run("port", "enlist", "P")
    house.run("instance", "resume", inbound["instance_id"])
    # The host of the location publishes it again, and that of the port sends it.
    hosts = [house.start_host(name) for name in ("Main", "Sender")]
    [waiting] = wait_until(lambda: house.suspended(error="PORT_STOPPED"), what="the order suspended at P")
    assert house.suspended("resumable") == [waiting]
    house.run("port", "start", "P")
    assert house.wait_for_files("out/p", 1) == [b'{"region": "EU"}']
    for host in hosts:
        host.stop()
    house.run("jobs", "run")
    assert house.suspended() == []
    house.run("port", "unenlist", "P")
