"""Messages from a folder and over HTTP pass through the receive pipeline on Spark: ACC-01, ACC-20."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

import postroom
from postroom import Message, Property
from postroom.messagebox.connection import connect
from tests.conftest import NOT_DURABLE, SMALL, start_server
from tests.support.contents import Contents
from tests.support.databases import Databases
from tests.support.folders import open_folder
from tests.support.installation import Installation
from tests.support.reserved_port import is_listening, reserve_port
from tests.support.waiting import PATIENCE, wait_until

Region = Property("Orders.Region", str)
STYLESHEET = """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:output omit-xml-declaration="yes"/>
<xsl:template match="/order"><sale in="NAME"><xsl:value-of select="country"/></sale></xsl:template>
</xsl:stylesheet>
"""


@pytest.fixture(scope="module")
def web_port() -> Iterator[int]:
    with reserve_port() as port:
        yield port


@pytest.fixture(scope="module")
def receiving_installation(web_port: int) -> Iterator[Installation]:
    """Yield a home folder with a running pipeline and locations of every kind.

    Hosts run only while a test has started them. Messages from folders are sent by another host than messages over
    HTTP. The server is not shared, because other tests check all sessions of their server."""
    with (
        open_folder() as home,
        start_server(NOT_DURABLE | SMALL) as server,
        Databases(server) as databases,
        databases.clone() as url,
        Installation(home, url) as opened,
    ):
        for name in ("US", "CAN"):
            (home / f"{name}.xslt").write_text(STYLESHEET.replace("NAME", name))
        opened.apply(
            f"""
            from postroom import Throttling, maps
            Country = Property("Sales.Country", int)
            app.host("Main", throttling=Throttling(messages=50, spool_multiplier=0, longest_delay=2))
            app.host("Sender")
            app.send_port("Held", adapters.Null(), filter=Region == "HELD", state="stopped", host="Sender")
            app.receive_port("RP").location("any", adapters.File("any", pattern="*"), pipeline=pipelines.PassThrough())
            app.send_port("A", adapters.File("out/a"), filter=BTS.ReceivePortName == "RP", host="Sender")
            app.send_port("B", adapters.File("out/b"), filter=BTS.ReceivePortName == "RP", host="Sender")
            app.send_port("C", adapters.File("out/c"), filter=BTS.ReceivePortName == "Other", host="Sender")
            orders = pipelines.Json(promote=PROMOTE)
            app.receive_port("In").location("drop", adapters.File("in", pattern="*.json"), pipeline=orders)
            app.send_port("P", adapters.File("out/p"), filter=Region == "EU", state="bound", host="Sender")
            app.receive_port("Web").location("web", adapters.HttpReceive("/orders", port={web_port}), pipeline=orders)
            countries = pipelines.Xml(promote={{Country: "/order/country"}})
            app.property(Country)
            app.receive_port("CBR").location("cbr", adapters.File("cbr"), pipeline=countries)
            for name, code in (("US", 100), ("CAN", 200)):
                to_country = maps.Xslt(f"{{name}}.xslt", source="order", target="sale")
                app.send_port(name, adapters.File(f"out/{{name}}"), maps=[to_country], host="Sender",
                              filter=(BTS.ReceivePortName == "CBR") & (Country == code))
            app.send_port("FromWeb", adapters.File("out/web"), filter=Region == "US")
            """
        )
        opened.start_pipeline()
        yield opened
        opened.run("check")


@pytest.fixture
def contents(receiving_installation: Installation) -> Iterator[Contents]:
    assert receiving_installation.database is not None
    with connect(receiving_installation.database) as connection:
        yield Contents(connection)


def test_every_port_whose_filter_matches_sends_identical_bytes_once(
    receiving_installation: Installation, contents: Contents
) -> None:
    """MSG-02, MSG-05, SUB-01, ACC-01."""
    installation = receiving_installation
    body = bytes(range(256)) * 100
    installation.drop_file("random.bin", body, folder="any")
    wait_until(lambda: contents.count("queued") == 2, what="two queue rows")
    assert (contents.count("messages"), contents.count("parts")) == (1, 1)
    assert contents.count_references("message") == 2
    host = installation.start_host("Sender")
    assert installation.wait_for_files("out/a", 1) == [body]
    assert installation.wait_for_files("out/b", 1) == [body]
    wait_until(lambda: contents.count("queued") == 0, what="an empty queue")
    host.stop()
    installation.run("jobs", "run")
    assert (contents.count("messages"), contents.count("parts")) == (0, 0)
    assert installation.read_files("out/c") == []
    assert (len(installation.read_files("out/a")), len(installation.read_files("out/b"))) == (1, 1)
    wait_until(lambda: list((installation.home / "any").glob("*.bin")) == [], what="an empty source folder")


def test_an_unroutable_message_can_be_resumed_once_it_has_a_subscriber(receiving_installation: Installation) -> None:
    """ACC-20, INS-18."""
    installation = receiving_installation
    installation.drop_file("order.json", b'{"region": "EU"}')
    [inbound] = wait_until(lambda: installation.list_suspended("resumable"), what="the suspended order")
    [report] = installation.list_suspended("not-resumable")
    assert report["service_class"] == "routing_failure_report"
    assert inbound["error_code"] == "ROUTING"
    installation.run("port", "enlist", "P")
    installation.run("instance", "resume", inbound["instance_id"])
    # The host of the location publishes it again, and the host of the port sends it.
    hosts = [installation.start_host(name) for name in ("Main", "Sender")]
    [waiting] = wait_until(lambda: installation.list_suspended(error="PORT_STOPPED"), what="the order suspended at P")
    assert installation.list_suspended("resumable") == [waiting]
    installation.run("port", "start", "P")
    assert installation.wait_for_files("out/p", 1) == [b'{"region": "EU"}']
    for host in hosts:
        host.stop()
    installation.run("jobs", "run")
    assert installation.list_suspended() == []
    installation.run("port", "unenlist", "P")


def test_a_document_is_routed_and_mapped_by_its_content(receiving_installation: Installation) -> None:
    """FLT-12."""
    installation = receiving_installation
    for code in (100, 200, 300):
        installation.drop_file(f"{code}.xml", b"<order><country>%d</country></order>" % code, folder="cbr")
    host = installation.start_host("Sender")
    [american] = installation.wait_for_files("out/US", 1)
    [canadian] = installation.wait_for_files("out/CAN", 1)
    assert (american.strip(), canadian.strip()) == (b'<sale in="US">100</sale>', b'<sale in="CAN">200</sale>')
    [unroutable] = wait_until(lambda: installation.list_suspended("resumable"), what="the third order")
    assert (unroutable["error_code"], unroutable["service"]) == ("ROUTING", "cbr")
    assert "<country>300<" in installation.run("message", "body", unroutable["instance_id"])
    installation.run("instance", "terminate", unroutable["instance_id"])
    host.stop()
    installation.run("jobs", "run")


def post(url: str, body: bytes, key: str) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(url, data=body, headers={"Idempotency-Key": key}, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


def test_an_accepted_request_is_delivered_once_and_requests_are_rejected_while_throttled(
    receiving_installation: Installation, web_port: int
) -> None:
    """THR-04, THR-05."""
    installation, url = receiving_installation, f"http://127.0.0.1:{web_port}/orders"
    assert installation.database is not None
    host = installation.start_host()

    def show_location() -> dict[str, Any]:
        [one] = [location for location in installation.run_json("pipeline", "show") if location["location"] == "web"]
        return dict(one)

    wait_until(lambda: is_listening(web_port), what="an open port")
    first, second = (b'{"region": "US", "priority": %d}' % number for number in (1, 2))
    with psycopg.connect(installation.database, autocommit=True) as connection:
        connection.execute("SELECT pg_advisory_lock(7001, 0)")
        status, accepted = post(url, first, "order-1")
        assert status == 202
        # The sender gets its answer before the publish, and the same answer when it repeats the request.
        assert post(url, first, "order-1") == (202, accepted)
        assert show_location()["waiting"] == 1
        connection.execute("SELECT pg_advisory_unlock(7001, 0)")
        assert installation.wait_for_files("out/web", 1) == [first]
        assert post(url, first, "order-1") == (202, accepted)
        wait_until(lambda: show_location()["published"] == 1, what="a location with one published message")

    with postroom.connect(installation.database) as client:
        client.publish_many([Message.of(b"", promoted={Region: "HELD"}) for _ in range(100)])
    wait_until(lambda: show_location()["state"] == "throttled", what="a throttled location")
    assert "messages are in the queues; the threshold is 50" in show_location()["reason"]
    # The host reads the load about once a second. A repeated request publishes nothing, whatever the answer is.
    wait_until(lambda: post(url, first, "order-1")[0] == 503, what="a host that rejects requests")
    status, refused = post(url, second, "order-2")
    assert status == 503
    assert "messages are in the queues" in refused["error"]
    installation.run("instance", "terminate", "--all", "--port", "Held", "--yes")
    wait_until(lambda: post(url, second, "order-2")[0] == 202, what="an open location")
    assert sorted(installation.wait_for_files("out/web", 2)) == [first, second]
    wait_until(lambda: show_location()["state"] == "receiving", what="a location that is not throttled")
    assert show_location()["waiting"] == 0
    host.stop()
    installation.run("jobs", "run")
