"""Two-way ports: requests, responses and negative acknowledgements through the MessageBox (RR-01 … 12)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
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
from postroom.hosts.messaging.callers import Caller, NoResponse
from postroom.hosts.messaging.requests import RequestReceiver
from postroom.maps.port_maps import PortMaps
from postroom.message import Bytes, Message
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.operations.ports import send_ports
from postroom.pipelines import ReceivePipeline
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.support.box import PROMOTE, Box, Region
from tests.support.two_way import AnsweringAdapter, make_location_two_way, make_two_way
from tests.support.waiting import PATIENCE, wait_until

EU = b'{"region": "EU"}'
PRICING = "Orders.Region == 'EU' and BTS.ReceivePortName == 'Quotes'"


class Quotes:
    """A two-way receive location, and the two-way send port Pricing, which answers its requests."""

    def __init__(self, box: Box, start_host: StartHost, connection: Connection) -> None:
        self.box = box
        self.location = make_location_two_way(box, box.add_location(pipelines.Json(promote=PROMOTE), port="Quotes"))
        self._start_host = start_host
        self._connection = connection
        self._receivers: list[RequestReceiver] = []

    def start(
        self, adapter: AnsweringAdapter | None = None, pipeline: ReceivePipeline | None = None, **settings: Any
    ) -> HostInstance:
        """Add the send port with these settings, and start a host instance."""
        self.box.add_port("Pricing", PRICING, **settings)
        make_two_way(self.box, "Pricing", pipeline or pipelines.Json(promote=PROMOTE))
        return self.start_host(adapter)

    def start_host(self, adapter: AnsweringAdapter | None = None) -> HostInstance:
        instance = self._start_host(adapter or AnsweringAdapter())
        self._receivers.append(
            RequestReceiver(host=self.box.host(), host_instance=instance.host_instance, callers=instance.callers)
        )
        return instance

    def ask(
        self,
        body: bytes = EU,
        *,
        key: uuid.UUID | None = None,
        digest: bytes = b"d",
        timeout: float = PATIENCE,
        at: int = 0,
        connection: Connection | None = None,
    ) -> Caller:
        """Publish a request at one of the host instances. ``key`` is the interchange of an idempotency key."""
        return self._receivers[at].receive(
            connection or self._connection,
            self.location,
            Interchange(interchange_id=key or uuid.uuid4(), body=Bytes(body)),
            timeout=timeout,
            digest=None if key is None else digest,
        )

    def map_response(self, stylesheet: str, folder: Path) -> None:
        """Let the receive port map its responses with an XSLT template."""
        (folder / "price.xsl").write_text(
            '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">'
            f'<xsl:output omit-xml-declaration="yes"/>{stylesheet}</xsl:stylesheet>'
        )
        packed = PortMaps.pack([maps.Xslt("price.xsl", source="price", target="answer")], folder)
        assert self.location.response_json is not None
        response = {**self.location.response_json, "maps": packed.model_dump(mode="json")}
        self.location = replace(self.location, response_json=response)

    def count_waiting(self) -> int:
        waiting = "SELECT count(*) FROM subscriptions WHERE instance_id IS NOT NULL AND removed_at IS NULL"
        return int(self.box.one(waiting))


@pytest.fixture
def quotes(box: Box, start_host: StartHost) -> Iterator[Quotes]:
    with connect(box.url, user=box.host().role_name) as connection:
        yield Quotes(box, start_host, connection)


def get_holders(box: Box) -> list[uuid.UUID]:
    """Return the instances that wait at host instances."""
    waiting = "SELECT instance_id FROM subscriptions WHERE for_host_instance IS NOT NULL AND removed_at IS NULL"
    return [instance_id for (instance_id,) in box.connection.execute(waiting)]


def declare_dead(box: Box) -> None:
    """Declare all host instances dead, as if they were cut off from the MessageBox."""
    box.connection.execute("DELETE FROM host_instances")
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    end_sessions(box)


def end_sessions(box: Box) -> None:
    """End the sessions that hold the locks of host instances, so that these register again."""
    box.connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7002"
    )


def read(caller: Caller) -> bytes:
    answer = caller.future.result(PATIENCE)
    assert answer.missing is None
    assert answer.body is not None
    return b"".join(answer.body.chunks())


def read_reason(caller: Caller) -> NoResponse | None:
    return caller.future.result(PATIENCE).missing


def test_the_response_of_a_send_port_returns_to_the_caller(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b'{"region": "EU", "total": 5}')
    quotes.start(adapter)
    caller = quotes.ask()
    assert read(caller) == b'{"region": "EU", "total": 5}'
    [sent] = adapter.sent
    assert sent.body == EU
    assert str(sent.message.context[BTS.EpmRRCorrelationToken]).endswith(f"RRUid:{caller.instance_id}")
    assert sent.message.context[BTS.IsRequestResponse] is True
    assert quotes.count_waiting() == 0
    wait_until(lambda: box.count("instances") == 0)
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []
    assert box.count("spool") == 0


def test_concurrent_callers_get_their_own_responses(box: Box, quotes: Quotes) -> None:
    """ACC-40, without HTTP."""
    quotes.start(AnsweringAdapter(lambda body: body.replace(b'"n"', b'"answer"')))

    def ask(number: int) -> bytes:
        with connect(box.url, user=box.host().role_name) as connection:
            caller = quotes.ask(b'{"region": "EU", "n": %d}' % number, connection=connection)
        return read(caller)

    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(ask, range(50)))
    assert answers == [b'{"region": "EU", "answer": %d}' % number for number in range(50)]
    assert quotes.count_waiting() == 0


def test_other_ports_can_subscribe_to_the_responses_of_a_port(box: Box, quotes: Quotes) -> None:
    """ACC-42, CTX-22."""
    box.add_port("Audit", "BTS.SPName == 'Pricing'")
    adapter = AnsweringAdapter(lambda body: b'{"region": "US"}')
    quotes.start(adapter)
    assert read(quotes.ask()) == b'{"region": "US"}'
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


def test_a_caller_whose_time_is_over_is_told_and_its_late_response_is_suspended(box: Box, quotes: Quotes) -> None:
    """ACC-41, RR-05."""
    quotes.start(state="stopped")
    assert read_reason(quotes.ask(timeout=0.05)) is NoResponse.EXPIRED
    wait_until(lambda: quotes.count_waiting() == 0)
    send_ports.start(box.connection, "Pricing")
    wait_until(lambda: box.suspended() == [("CORRELATION", False)])
    assert check(box.connection) == []


def test_a_request_whose_time_is_over_before_its_commit_waits_no_longer(quotes: Quotes) -> None:
    quotes.start(state="stopped")
    assert read_reason(quotes.ask(timeout=0)) is NoResponse.EXPIRED
    wait_until(lambda: quotes.count_waiting() == 0)


def test_a_second_response_is_suspended(box: Box, quotes: Quotes) -> None:
    """RR-07, RR-08: two ports answer the same request."""
    box.add_port("Other", PRICING)
    make_two_way(box, "Other")
    quotes.start(AnsweringAdapter(lambda body: EU))
    assert read(quotes.ask()) == EU
    wait_until(lambda: box.suspended() == [("CORRELATION", False)])


def test_a_cancelled_request_waits_no_longer(quotes: Quotes) -> None:
    """RR-09."""
    instance = quotes.start(state="stopped")
    caller = quotes.ask()
    assert (quotes.count_waiting(), len(instance.callers)) == (1, 1)
    instance.callers.cancel(caller)
    wait_until(lambda: quotes.count_waiting() == 0)
    assert len(instance.callers) == 0


@pytest.mark.parametrize("route_failures", [False, True])
def test_a_failed_request_is_suspended_and_its_caller_is_told(box: Box, quotes: Quotes, route_failures: bool) -> None:
    """RR-11: regardless of failed-message routing."""
    box.add_port("Failures", "ErrorReport.ErrorType == 'FailedMessage'")

    def fail(message: Message, attempt: Attempt) -> None:
        if message.context[BTS.SPName] == "Pricing":
            raise DeliveryFailure("The receiver is down.")

    adapter = AnsweringAdapter()
    adapter.behave = fail
    quotes.start(adapter, retry_count=1, retry_seconds=0, route_failures=route_failures)
    assert read_reason(quotes.ask()) is NoResponse.REFUSED
    assert len([attempt for attempt in adapter.attempts if attempt.port == "Pricing"]) == 2
    if route_failures:
        wait_until(lambda: [sent.port for sent in adapter.sent] == ["Failures"])
    else:
        wait_until(lambda: box.suspended() == [("DELIVERY", True)])
    assert quotes.count_waiting() == 0


def test_a_response_that_cannot_be_read_is_suspended_and_its_caller_is_told(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"no JSON")
    quotes.start(adapter)
    assert read_reason(quotes.ask()) is NoResponse.REFUSED
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
    box: Box, quotes: Quotes, body: bytes, failure: type[Exception], suspended: list[tuple[str, bool]]
) -> None:
    """RR-12."""
    instance = quotes.start()
    with pytest.raises(failure):
        quotes.ask(body)
    assert box.suspended() == suspended
    assert box.one("SELECT service_id FROM suspended_queue WHERE cause = 2") == quotes.location.location_id
    assert (quotes.count_waiting(), len(instance.callers)) == (0, 0)
    assert check(box.connection) == []


def test_a_request_with_several_documents_is_refused(quotes: Quotes) -> None:
    quotes.start()
    lines = pipelines.JsonLines(promote=PROMOTE).model_dump(mode="json")
    quotes.location = replace(quotes.location, pipeline_json=lines)
    with pytest.raises(PipelineFailure, match="2 documents, but a two-way port needs exactly one"):
        quotes.ask(EU + b"\n" + EU)


def test_the_maps_of_the_receive_port_run_on_the_response(quotes: Quotes, tmp_path: Path) -> None:
    quotes.start(AnsweringAdapter(lambda body: b"<price>5</price>"), pipelines.Xml())
    quotes.map_response(
        '<xsl:template match="/price"><answer><xsl:value-of select="."/></answer></xsl:template>', tmp_path
    )
    caller = quotes.ask()
    assert read(caller).strip() == b"<answer>5</answer>"
    assert caller.future.result().content_type == "application/xml"


def test_a_response_that_the_receive_port_cannot_map_is_suspended_and_its_caller_is_told(
    box: Box, quotes: Quotes, tmp_path: Path
) -> None:
    """RR-12."""
    quotes.start(AnsweringAdapter(lambda body: b"<price>5</price>"), pipelines.Xml())
    quotes.map_response(
        '<xsl:template match="/"><xsl:message terminate="yes">no</xsl:message></xsl:template>', tmp_path
    )
    assert read_reason(quotes.ask()) is NoResponse.REFUSED
    wait_until(lambda: box.suspended() == [("MAP", False)])
    wait_until(lambda: quotes.count_waiting() == 0)


def test_an_ordered_two_way_port_sends_requests_in_order_and_each_caller_gets_its_response(quotes: Quotes) -> None:
    adapter = AnsweringAdapter()
    quotes.start(adapter, ordered=True)
    bodies = [b'{"region": "EU", "n": %d}' % number for number in range(10)]
    callers = [quotes.ask(body) for body in bodies]
    assert [read(caller) for caller in callers] == bodies
    assert [sent.body for sent in adapter.sent] == bodies
    assert quotes.count_waiting() == 0


def test_a_repeated_key_joins_the_waiting_call_and_later_gets_the_stored_response(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    first = quotes.ask(key=key)
    assert quotes.ask(key=key) is first
    with pytest.raises(KeyReused):
        quotes.ask(key=key, digest=b"other")
    send_ports.start(box.connection, "Pricing")
    assert read(first) == b"5"
    assert read(quotes.ask(key=key)) == b"5"
    with pytest.raises(KeyReused):
        quotes.ask(key=key, digest=b"other")
    assert len(adapter.sent) == 1


def test_a_caller_that_waits_again_still_waits_for_each_of_its_connections(quotes: Quotes) -> None:
    callers = quotes.start(state="stopped").callers
    caller = callers.add(quotes.ask())
    taken = callers.take(caller.instance_id)
    assert taken is caller
    callers.put_back(caller)
    callers.cancel(caller)
    assert callers.is_waiting(caller)
    assert quotes.count_waiting() == 1
    callers.cancel(caller)
    assert not callers.is_waiting(caller)
    wait_until(lambda: quotes.count_waiting() == 0)


def test_a_caller_that_was_cancelled_while_it_was_taken_does_not_wait_again(quotes: Quotes) -> None:
    callers = quotes.start(state="stopped").callers
    caller = quotes.ask()
    assert callers.take(caller.instance_id) is caller
    callers.cancel(caller)
    callers.put_back(caller)
    assert not callers.is_waiting(caller)
    wait_until(lambda: quotes.count_waiting() == 0)


def test_a_repeated_key_at_another_host_instance_joins_the_waiting_call(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    other = quotes.start_host(adapter)
    key = uuid.uuid4()
    first = quotes.ask(key=key)
    joined = quotes.ask(key=key, at=1)
    assert quotes.ask(key=key, at=1) is joined
    with pytest.raises(KeyReused):
        quotes.ask(key=key, digest=b"other", at=1)
    send_ports.start(box.connection, "Pricing")
    assert (read(first), read(joined)) == (b"5", b"5")
    assert read(quotes.ask(key=key, at=1)) == b"5"
    assert len(adapter.sent) == 1
    assert len(other.callers) == 0


def test_a_call_that_has_joined_another_host_instance_is_told_when_the_first_one_waits_no_longer(
    quotes: Quotes,
) -> None:
    quotes.start(state="stopped")
    quotes.start_host()
    key = uuid.uuid4()
    first = quotes.ask(key=key, timeout=0.2)
    joined = quotes.ask(key=key, at=1)
    assert read_reason(first) is NoResponse.EXPIRED
    assert read_reason(joined) is NoResponse.LOST


def test_a_call_that_has_joined_another_host_instance_ends_after_its_own_time(quotes: Quotes) -> None:
    quotes.start(state="stopped")
    quotes.start_host()
    key = uuid.uuid4()
    first = quotes.ask(key=key)
    assert read_reason(quotes.ask(key=key, timeout=0.05, at=1)) is NoResponse.EXPIRED
    assert quotes.count_waiting() == 1
    assert not first.future.done()


def test_a_client_that_has_disconnected_gets_the_response_when_it_repeats_its_key(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    first = quotes.ask(key=key)
    instance.callers.cancel(first)
    assert quotes.ask(key=key) is first
    instance.callers.cancel(first)
    send_ports.start(box.connection, "Pricing")
    assert read(first) == b"5"
    assert read(quotes.ask(key=key)) == b"5"
    assert len(adapter.sent) == 1


def test_a_repeated_key_whose_response_was_lost_is_told(quotes: Quotes) -> None:
    quotes.start(state="stopped")
    key = uuid.uuid4()
    assert read_reason(quotes.ask(key=key, timeout=0.05)) is NoResponse.EXPIRED
    wait_until(lambda: quotes.count_waiting() == 0)
    assert read_reason(quotes.ask(key=key)) is NoResponse.LOST


def test_a_large_response_is_stored_for_a_repeated_key(quotes: Quotes) -> None:
    answer = bytes(range(256)) * 10_000
    adapter = AnsweringAdapter(lambda body: answer)
    quotes.start(adapter, pipelines.PassThrough())
    key = uuid.uuid4()
    assert read(quotes.ask(key=key)) == answer
    assert read(quotes.ask(key=key)) == answer
    assert len(adapter.sent) == 1


def test_an_empty_response_is_stored_for_a_repeated_key(quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"")
    quotes.start(adapter, pipelines.PassThrough())
    key = uuid.uuid4()
    assert read(quotes.ask(key=key)) == b""
    assert read(quotes.ask(key=key)) == b""
    assert len(adapter.sent) == 1


def test_a_repeated_key_whose_first_request_could_not_be_answered_is_told_the_same(quotes: Quotes) -> None:
    def fail(message: Message, attempt: Attempt) -> None:
        raise DeliveryFailure("The receiver is down.")

    adapter = AnsweringAdapter()
    adapter.behave = fail
    quotes.start(adapter, retry_count=0)
    key = uuid.uuid4()
    assert read_reason(quotes.ask(key=key)) is NoResponse.REFUSED
    assert read_reason(quotes.ask(key=key)) is NoResponse.REFUSED


def test_a_repeated_key_takes_over_from_a_host_instance_that_has_stopped(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    first_instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    first = quotes.ask(key=key)
    first_instance.stop()
    assert read_reason(first) is NoResponse.STOPPING
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    assert quotes.count_waiting() == 1
    quotes.start_host(adapter)
    repeated = quotes.ask(key=key, at=1)
    wait_until(lambda: get_holders(box) == [repeated.instance_id], what="the new holder")
    assert quotes.count_waiting() == 1
    send_ports.start(box.connection, "Pricing")
    assert read(repeated) == b"5"
    assert len(adapter.sent) == 1
    wait_until(lambda: box.count("instances") == 0)
    assert quotes.count_waiting() == 0
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []
    assert box.count("spool") == 0


def test_a_repeated_key_gets_the_response_that_came_after_the_death_of_its_host_instance(
    box: Box, quotes: Quotes
) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    first_instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    key = uuid.uuid4()
    quotes.ask(key=key)
    first_instance.stop()
    quotes.start_host(adapter)
    send_ports.start(box.connection, "Pricing")
    wait_until(lambda: len(adapter.sent) == 1, what="the request")
    wait_until(lambda: box.count("work_queue WHERE for_host_instance IS NOT NULL") == 1, what="the response")
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    assert box.suspended() == []
    assert read(quotes.ask(key=key, at=1)) == b"5"
    assert len(adapter.sent) == 1
    assert check(box.connection) == []


def test_a_request_with_a_key_stops_waiting_for_a_repeat_when_its_time_is_over(box: Box, quotes: Quotes) -> None:
    """RR-06."""
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    quotes.ask(key=uuid.uuid4())
    instance.stop()
    box.one("SELECT dead_processes_cleanup('0 seconds', now() + interval '1 day')")
    assert quotes.count_waiting() == 0
    quotes.start_host(adapter)
    send_ports.start(box.connection, "Pricing")
    wait_until(lambda: box.suspended() == [("CORRELATION", False)])


def test_a_call_with_a_key_waits_on_when_its_host_instance_was_declared_dead(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    first = quotes.ask(key=uuid.uuid4())
    declare_dead(box)
    wait_until(lambda: instance.regained_locks == 1)
    send_ports.start(box.connection, "Pricing")
    assert read(first) == b"5"
    wait_until(lambda: quotes.count_waiting() == 0)


def test_a_call_whose_host_instance_was_declared_dead_gets_the_response_of_the_one_that_took_over(
    box: Box, quotes: Quotes
) -> None:
    adapter = AnsweringAdapter(lambda body: b"5")
    instance = quotes.start(adapter, pipelines.PassThrough(), state="stopped")
    quotes.start_host(adapter)
    key = uuid.uuid4()
    first = quotes.ask(key=key)
    repeated = quotes.ask(key=key, at=1)
    box.connection.execute("DELETE FROM host_instances WHERE id = %s", (instance.host_instance,))
    wait_until(lambda: get_holders(box) == [repeated.instance_id], what="the new holder")
    end_sessions(box)
    wait_until(lambda: instance.regained_locks == 1)
    send_ports.start(box.connection, "Pricing")
    assert (read(first), read(repeated)) == (b"5", b"5")
    assert len(adapter.sent) == 1


def test_callers_are_told_when_their_host_instance_was_declared_dead(box: Box, quotes: Quotes) -> None:
    """A host that was cut off from the MessageBox finds its waiting requests removed."""
    instance = quotes.start(state="stopped")
    caller = quotes.ask()
    declare_dead(box)
    assert read_reason(caller) is NoResponse.REFUSED
    wait_until(lambda: instance.regained_locks == 1)


def test_callers_are_told_when_the_host_stops(box: Box, quotes: Quotes) -> None:
    instance = quotes.start(state="stopped")
    caller = quotes.ask()
    instance.stop()
    assert caller.future.result(0).missing is NoResponse.STOPPING
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    assert quotes.count_waiting() == 0
