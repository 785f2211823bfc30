"""Two-way ports: requests, responses and negative acknowledgements through the MessageBox (RR-01 … 12)."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from postroom import maps, pipelines
from postroom.adapters import Attempt
from postroom.agent.receiving.interchange import Interchange
from postroom.errors import DeliveryFailure, KeyReused, PipelineFailure, RoutingFailure
from postroom.hosts import HostInstance
from postroom.hosts.messaging.callers import Answer, Caller, NoResponse
from postroom.hosts.messaging.requests import RequestReceiver
from postroom.maps.port_maps import PortMaps
from postroom.message import Bytes, Message
from postroom.messagebox.check import check
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.jobs import run_all_jobs_once
from postroom.messagebox.queues import HostQueues
from postroom.operations.ports import send_ports
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.support.box import PROMOTE, Box, Region
from tests.support.two_way import AnsweringAdapter, make_location_two_way, make_two_way
from tests.support.waiting import PATIENCE, wait_until

EU = b'{"region": "EU"}'
PRICING = "Orders.Region == 'EU' and BTS.ReceivePortName == 'Quotes'"

Ask = Callable[..., Caller]


@pytest.fixture
def location(box: Box) -> ReceiveLocation:
    return make_location_two_way(box, box.add_location(pipelines.Json(promote=PROMOTE), port="Quotes"))


@pytest.fixture
def host(box: Box) -> Iterator[Connection]:
    with connect(box.url, user=box.host().role_name) as connection:
        yield connection


def open_requests(box: Box, instance: HostInstance) -> RequestReceiver:
    return RequestReceiver(
        host=box.host(),
        host_instance=instance.host_instance,
        callers=instance.callers,
        queues=HostQueues("Default"),
    )


def make_interchange(body: bytes, interchange_id: uuid.UUID | None = None) -> Interchange:
    return Interchange(interchange_id=interchange_id or uuid.uuid4(), body=Bytes(body))


def read(answer: Answer) -> bytes:
    assert answer.missing is None
    assert answer.body is not None
    return b"".join(answer.body.chunks())


def add_pricing(box: Box, **settings: Any) -> None:
    box.add_port("Pricing", PRICING, **settings)
    make_two_way(box, "Pricing", pipelines.Json(promote=PROMOTE))


def count_waiting(box: Box) -> int:
    return int(box.one("SELECT count(*) FROM subscriptions WHERE instance_id IS NOT NULL AND removed_at IS NULL"))


def test_the_response_of_a_send_port_returns_to_the_caller(
    box: Box, start_host: StartHost, location: ReceiveLocation, host: Connection
) -> None:
    add_pricing(box)
    adapter = AnsweringAdapter(lambda body: b'{"region": "EU", "total": 5}')
    requests = open_requests(box, start_host(adapter))
    caller = requests.receive(host, location, make_interchange(EU), timeout=PATIENCE)
    assert read(caller.future.result(PATIENCE)) == b'{"region": "EU", "total": 5}'
    [sent] = adapter.sent
    assert sent.body == EU
    assert str(sent.message.context[BTS.EpmRRCorrelationToken]).endswith(f"RRUid:{caller.instance_id}")
    assert sent.message.context[BTS.IsRequestResponse] is True
    assert count_waiting(box) == 0
    wait_until(lambda: box.count("instances") == 0)
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []
    assert box.count("spool") == 0


def test_concurrent_callers_get_their_own_responses(box: Box, start_host: StartHost, location: ReceiveLocation) -> None:
    """ACC-40, without HTTP."""
    add_pricing(box)
    requests = open_requests(box, start_host(AnsweringAdapter(lambda body: body.replace(b'"n"', b'"answer"'))))

    def ask(number: int) -> bytes:
        with connect(box.url, user=box.host().role_name) as connection:
            body = b'{"region": "EU", "n": %d}' % number
            caller = requests.receive(connection, location, make_interchange(body), timeout=PATIENCE)
        return read(caller.future.result(PATIENCE))

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(ask, range(50)))
    assert answers == [b'{"region": "EU", "answer": %d}' % number for number in range(50)]
    assert count_waiting(box) == 0


def test_other_ports_can_subscribe_to_the_responses_of_a_port(
    box: Box, start_host: StartHost, location: ReceiveLocation, host: Connection
) -> None:
    """ACC-42, CTX-22."""
    add_pricing(box)
    box.add_port("Audit", "BTS.SPName == 'Pricing'")
    adapter = AnsweringAdapter(lambda body: b'{"region": "US"}')
    requests = open_requests(box, start_host(adapter))
    caller = requests.receive(host, location, make_interchange(EU), timeout=PATIENCE)
    assert read(caller.future.result(PATIENCE)) == b'{"region": "US"}'
    wait_until(lambda: [sent.port for sent in adapter.sent] == ["Pricing", "Audit"])
    context = adapter.sent[1].message.context
    assert (context[Region], context[BTS.RouteDirectToTP]) == ("US", True)


def test_the_response_of_a_request_without_a_caller_is_published(box: Box, start_host: StartHost) -> None:
    box.add_port("Pricing", "Orders.Region == 'EU'")
    make_two_way(box, "Pricing")
    box.add_port("Audit", "BTS.SPName == 'Pricing'")
    adapter = AnsweringAdapter(lambda body: b"5")
    start_host(adapter)
    box.agent().publish([Message.of(b"an order", promoted={Region: "EU"})])
    wait_until(lambda: [(sent.port, sent.body) for sent in adapter.sent] == [("Pricing", b"an order"), ("Audit", b"5")])
    assert BTS.EpmRRCorrelationToken not in adapter.sent[1].message.context


def test_a_response_without_subscribers_is_suspended_with_a_report(box: Box, start_host: StartHost) -> None:
    box.add_port("Pricing", "Orders.Region == 'EU'")
    make_two_way(box, "Pricing")
    instance = start_host(AnsweringAdapter())
    box.agent().publish([Message.of(b"an order", promoted={Region: "EU"})])
    wait_until(lambda: instance.counts["finished"] == 1)
    assert sorted(box.suspended()) == [("ROUTING", False), ("ROUTING", True)]


def test_a_caller_whose_time_is_over_is_told_and_its_late_response_is_suspended(
    box: Box, start_host: StartHost, location: ReceiveLocation, host: Connection
) -> None:
    """ACC-41, RR-05."""
    box.add_port("Pricing", PRICING, state="stopped")
    make_two_way(box, "Pricing")
    requests = open_requests(box, start_host(AnsweringAdapter()))
    caller = requests.receive(host, location, make_interchange(EU), timeout=0.05)
    assert caller.future.result(PATIENCE).missing is NoResponse.EXPIRED
    wait_until(lambda: count_waiting(box) == 0)
    send_ports.start(box.connection, "Pricing")
    wait_until(lambda: box.suspended() == [("CORRELATION", False)])
    assert check(box.connection) == []


def test_a_request_whose_time_is_over_before_its_commit_waits_no_longer(
    box: Box, start_host: StartHost, location: ReceiveLocation, host: Connection
) -> None:
    box.add_port("Pricing", PRICING, state="stopped")
    make_two_way(box, "Pricing")
    instance = start_host(AnsweringAdapter())
    caller = open_requests(box, instance).receive(host, location, make_interchange(EU), timeout=0)
    assert caller.future.result(PATIENCE).missing is NoResponse.EXPIRED
    wait_until(lambda: count_waiting(box) == 0)


def test_a_second_response_is_suspended(
    box: Box, start_host: StartHost, location: ReceiveLocation, host: Connection
) -> None:
    """RR-07, RR-08: two ports answer the same request."""
    add_pricing(box)
    box.add_port("Other", PRICING)
    make_two_way(box, "Other")
    requests = open_requests(box, start_host(AnsweringAdapter(lambda body: EU)))
    caller = requests.receive(host, location, make_interchange(EU), timeout=PATIENCE)
    assert read(caller.future.result(PATIENCE)) == EU
    wait_until(lambda: box.suspended() == [("CORRELATION", False)])


def test_a_cancelled_request_waits_no_longer(
    box: Box, start_host: StartHost, location: ReceiveLocation, host: Connection
) -> None:
    """RR-09."""
    box.add_port("Pricing", PRICING, state="stopped")
    make_two_way(box, "Pricing")
    instance = start_host(AnsweringAdapter())
    caller = open_requests(box, instance).receive(host, location, make_interchange(EU), timeout=PATIENCE)
    assert (count_waiting(box), len(instance.callers)) == (1, 1)
    instance.callers.cancel(caller)
    wait_until(lambda: count_waiting(box) == 0)
    assert len(instance.callers) == 0


@pytest.mark.parametrize("route_failures", [False, True])
def test_a_failed_request_is_suspended_and_its_caller_is_told(
    box: Box, start_host: StartHost, location: ReceiveLocation, host: Connection, route_failures: bool
) -> None:
    """RR-11: regardless of failed-message routing."""
    add_pricing(box, retry_count=1, retry_seconds=0, route_failures=route_failures)
    box.add_port("Failures", "ErrorReport.ErrorType == 'FailedMessage'")

    def fail(message: Message, attempt: Attempt) -> None:
        if message.context[BTS.SPName] == "Pricing":
            raise DeliveryFailure("The receiver is down.")

    adapter = AnsweringAdapter()
    adapter.behave = fail
    requests = open_requests(box, start_host(adapter))
    caller = requests.receive(host, location, make_interchange(EU), timeout=PATIENCE)
    assert caller.future.result(PATIENCE).missing is NoResponse.REFUSED
    assert len([attempt for attempt in adapter.attempts if attempt.port == "Pricing"]) == 2
    if route_failures:
        wait_until(lambda: [sent.port for sent in adapter.sent] == ["Failures"])
    else:
        wait_until(lambda: box.suspended() == [("DELIVERY", True)])
    assert count_waiting(box) == 0


def test_a_response_that_cannot_be_read_is_suspended_and_its_caller_is_told(
    box: Box, start_host: StartHost, location: ReceiveLocation, host: Connection
) -> None:
    add_pricing(box)
    adapter = AnsweringAdapter(lambda body: b"no JSON")
    requests = open_requests(box, start_host(adapter))
    caller = requests.receive(host, location, make_interchange(EU), timeout=PATIENCE)
    assert caller.future.result(PATIENCE).missing is NoResponse.REFUSED
    wait_until(lambda: box.suspended() == [("PIPELINE", False)])
    assert len(adapter.sent) == 1
    assert box.one("SELECT convert_from(body, 'utf8') FROM parts WHERE body = 'no JSON'") == "no JSON"
    wait_until(lambda: box.count("work_queue") == 0)
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []


@pytest.mark.parametrize(
    ("body", "failure", "suspended"),
    [
        (b"no JSON", PipelineFailure, [("PIPELINE", False)]),
        (b'{"region": "US"}', RoutingFailure, [("ROUTING", False), ("ROUTING", False)]),
    ],
)
def test_a_request_that_cannot_be_published_is_suspended_and_cannot_be_resumed(
    box: Box,
    start_host: StartHost,
    location: ReceiveLocation,
    host: Connection,
    body: bytes,
    failure: type[Exception],
    suspended: list[tuple[str, bool]],
) -> None:
    """RR-12."""
    add_pricing(box)
    instance = start_host(AnsweringAdapter())
    with pytest.raises(failure):
        open_requests(box, instance).receive(host, location, make_interchange(body), timeout=PATIENCE)
    assert box.suspended() == suspended
    assert box.one("SELECT service_id FROM suspended_queue WHERE cause = 2") == location.location_id
    assert (count_waiting(box), len(instance.callers)) == (0, 0)
    assert check(box.connection) == []


def test_a_request_with_several_documents_is_refused(
    box: Box, start_host: StartHost, host: Connection, location: ReceiveLocation
) -> None:
    add_pricing(box)
    lines = replace(location, pipeline_json=pipelines.JsonLines(promote=PROMOTE).model_dump(mode="json"))
    requests = open_requests(box, start_host(AnsweringAdapter()))
    with pytest.raises(PipelineFailure, match="2 documents, but a two-way port needs exactly one"):
        requests.receive(host, lines, make_interchange(EU + b"\n" + EU), timeout=PATIENCE)


def test_the_maps_of_the_receive_port_run_on_the_response(
    box: Box, start_host: StartHost, host: Connection, location: ReceiveLocation, tmp_path: Path
) -> None:
    box.add_port("Pricing", PRICING)
    make_two_way(box, "Pricing", pipelines.Xml())
    (tmp_path / "price.xsl").write_text(
        '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
        '<xsl:output omit-xml-declaration="yes"/>'
        '<xsl:template match="/price"><answer><xsl:value-of select="."/></answer></xsl:template></xsl:stylesheet>'
    )
    packed = PortMaps.pack([maps.Xslt("price.xsl", source="price", target="answer")], tmp_path)
    assert location.response_json is not None
    mapped = replace(location, response_json={**location.response_json, "maps": packed.model_dump(mode="json")})
    requests = open_requests(box, start_host(AnsweringAdapter(lambda body: b"<price>5</price>")))
    caller = requests.receive(host, mapped, make_interchange(EU), timeout=PATIENCE)
    answer = caller.future.result(PATIENCE)
    assert (read(answer).strip(), answer.content_type) == (b"<answer>5</answer>", "application/xml")


def test_a_response_that_the_receive_port_cannot_map_is_suspended_and_its_caller_is_told(
    box: Box, start_host: StartHost, host: Connection, location: ReceiveLocation, tmp_path: Path
) -> None:
    """RR-12."""
    box.add_port("Pricing", PRICING)
    make_two_way(box, "Pricing", pipelines.Xml())
    (tmp_path / "price.xsl").write_text(
        '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
        '<xsl:template match="/"><xsl:message terminate="yes">no</xsl:message></xsl:template></xsl:stylesheet>'
    )
    packed = PortMaps.pack([maps.Xslt("price.xsl", source="price", target="answer")], tmp_path)
    assert location.response_json is not None
    mapped = replace(location, response_json={**location.response_json, "maps": packed.model_dump(mode="json")})
    requests = open_requests(box, start_host(AnsweringAdapter(lambda body: b"<price>5</price>")))
    caller = requests.receive(host, mapped, make_interchange(EU), timeout=PATIENCE)
    assert caller.future.result(PATIENCE).missing is NoResponse.REFUSED
    wait_until(lambda: box.suspended() == [("MAP", False)])
    wait_until(lambda: count_waiting(box) == 0)


def test_an_ordered_two_way_port_sends_requests_in_order_and_each_caller_gets_its_response(
    box: Box, start_host: StartHost, host: Connection, location: ReceiveLocation
) -> None:
    add_pricing(box, ordered=True)
    adapter = AnsweringAdapter()
    requests = open_requests(box, start_host(adapter))
    bodies = [b'{"region": "EU", "n": %d}' % number for number in range(10)]
    callers = [requests.receive(host, location, make_interchange(body), timeout=PATIENCE) for body in bodies]
    assert [read(caller.future.result(PATIENCE)) for caller in callers] == bodies
    assert [sent.body for sent in adapter.sent] == bodies
    assert count_waiting(box) == 0


def test_a_repeated_key_joins_the_waiting_call_and_later_gets_the_stored_response(
    box: Box, start_host: StartHost, host: Connection, location: ReceiveLocation
) -> None:
    box.add_port("Pricing", PRICING, state="stopped")
    make_two_way(box, "Pricing")
    adapter = AnsweringAdapter(lambda body: b"5")
    requests = open_requests(box, start_host(adapter))
    interchange = make_interchange(EU)
    first = requests.receive(host, location, interchange, timeout=PATIENCE, digest=b"d")
    assert requests.receive(host, location, interchange, timeout=PATIENCE, digest=b"d") is first
    with pytest.raises(KeyReused):
        requests.receive(host, location, interchange, timeout=PATIENCE, digest=b"other")
    send_ports.start(box.connection, "Pricing")
    assert read(first.future.result(PATIENCE)) == b"5"
    again = requests.receive(host, location, interchange, timeout=PATIENCE, digest=b"d")
    assert read(again.future.result(PATIENCE)) == b"5"
    with pytest.raises(KeyReused):
        requests.receive(host, location, interchange, timeout=PATIENCE, digest=b"other")
    assert len(adapter.sent) == 1


def test_a_repeated_key_whose_response_was_lost_is_told(
    box: Box, start_host: StartHost, host: Connection, location: ReceiveLocation
) -> None:
    box.add_port("Pricing", PRICING, state="stopped")
    make_two_way(box, "Pricing")
    requests = open_requests(box, start_host(AnsweringAdapter()))
    interchange = make_interchange(EU)
    first = requests.receive(host, location, interchange, timeout=0.05, digest=b"d")
    assert first.future.result(PATIENCE).missing is NoResponse.EXPIRED
    again = requests.receive(host, location, interchange, timeout=PATIENCE, digest=b"d")
    assert again.future.result(PATIENCE).missing is NoResponse.LOST


def test_callers_are_told_when_their_host_instance_was_declared_dead(
    box: Box, start_host: StartHost, host: Connection, location: ReceiveLocation
) -> None:
    """A host that was cut off from the MessageBox finds its waiting requests removed."""
    box.add_port("Pricing", PRICING, state="stopped")
    make_two_way(box, "Pricing")
    instance = start_host(AnsweringAdapter())
    caller = open_requests(box, instance).receive(host, location, make_interchange(EU), timeout=PATIENCE)
    box.connection.execute("DELETE FROM host_instances")
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    assert count_waiting(box) == 0
    box.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7002"
    )
    assert caller.future.result(PATIENCE).missing is NoResponse.REFUSED
    wait_until(lambda: instance.regained_locks == 1)


def test_callers_are_told_when_the_host_stops(
    box: Box, start_host: StartHost, host: Connection, location: ReceiveLocation
) -> None:
    box.add_port("Pricing", PRICING, state="stopped")
    make_two_way(box, "Pricing")
    instance = start_host(AnsweringAdapter())
    caller = open_requests(box, instance).receive(host, location, make_interchange(EU), timeout=PATIENCE)
    instance.stop()
    assert caller.future.result(0).missing is NoResponse.STOPPING
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    assert count_waiting(box) == 0
