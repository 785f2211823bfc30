"""Two-way ports: requests, responses and negative acknowledgements through the MessageBox (RR-01 … 12)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from postroom import pipelines
from postroom.adapters import Attempt
from postroom.adapters.contract import ReceivedResponse
from postroom.errors import DeliveryFailure, PipelineFailure, RoutingFailure
from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.queues import Cause
from postroom.operations.instances.advice import read_advice
from postroom.operations.ports import send_ports
from postroom.system_properties import BTS
from postroom.two_way.callers import MissingResponse
from tests.integration.hosts.conftest import StartHost
from tests.support.box import PROMOTE, Box, Region
from tests.support.quotes import EU, PRICING, Quotes, declare_dead, read, read_reason
from tests.support.two_way import AnsweringAdapter, make_two_way
from tests.support.waiting import wait_until


def test_the_response_of_a_send_port_returns_to_the_caller(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b'{"region": "EU", "total": 5}')
    quotes.start(adapter)
    caller = quotes.ask()
    assert read(caller) == b'{"region": "EU", "total": 5}'
    [sent] = adapter.sent
    assert sent.body == EU
    assert sent.message.context[BTS.EpmRRCorrelationToken] == caller.token
    assert sent.message.context[BTS.IsRequestResponse] is True
    assert quotes.count_waiting() == 0
    wait_until(lambda: box.count("instances") == 0)
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []
    assert box.count("messages") == 0


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
    """SUB-01, ACC-42, CTX-22."""
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
    """NRF-13."""
    box.add_port("Pricing", "Orders.Region == 'EU'")
    make_two_way(box, "Pricing")
    instance = start_host(AnsweringAdapter())
    box.agent().publish([Message.of(b"an order", promoted={Region: "EU"})])
    wait_until(lambda: instance.counts["finished"] == 1)
    assert sorted(box.suspended()) == [("ROUTING", False), ("ROUTING", True)]


class NonResumableAdapter(AnsweringAdapter):
    """Its responses are not to be resumed after a failure."""

    def solicit(self, message: Message, attempt: Attempt) -> ReceivedResponse:
        response = super().solicit(message, attempt)
        return replace(response, context=response.context.write(BTS.SuspendAsNonResumable, True))


def test_an_unroutable_response_can_be_not_resumable(box: Box, start_host: StartHost) -> None:
    box.add_port("Pricing", "Orders.Region == 'EU'")
    make_two_way(box, "Pricing")
    instance = start_host(NonResumableAdapter())
    box.agent().publish([Message.of(b"an order", promoted={Region: "EU"})])
    wait_until(lambda: instance.counts["finished"] == 1)
    assert box.suspended() == [("ROUTING", False), ("ROUTING", False)]


class ForgingAdapter(AnsweringAdapter):
    """Pretends that its responses are those of another port."""

    def solicit(self, message: Message, attempt: Attempt) -> ReceivedResponse:
        response = super().solicit(message, attempt)
        return replace(response, context=response.context.promote(BTS.SPName, "Other"))


def test_a_response_is_suspended_if_its_adapter_promotes_what_only_the_engine_promotes(
    box: Box, quotes: Quotes
) -> None:
    """PUB-13."""
    box.add_port("Audit", "exists(BTS.SPName)")
    quotes.start(ForgingAdapter(), pipelines.PassThrough())
    assert read_reason(quotes.ask()) is MissingResponse.REFUSED
    [(code, _)] = box.suspended()
    assert code == "PIPELINE"
    assert "promotes BTS.SPName" in box.read_error()


def test_a_caller_gets_an_error_after_its_timeout_and_the_late_response_is_suspended(box: Box, quotes: Quotes) -> None:
    """ACC-41, RR-05."""
    quotes.start(state="stopped")
    assert read_reason(quotes.ask(timeout=0.05)) is MissingResponse.EXPIRED
    wait_until(lambda: quotes.count_waiting() == 0)
    send_ports.start(box.connection, "Pricing")
    wait_until(lambda: box.suspended() == [("CORRELATION", False)])
    assert check(box.connection) == []


def test_a_request_whose_time_is_over_before_its_commit_waits_no_longer(quotes: Quotes) -> None:
    quotes.start(state="stopped")
    assert read_reason(quotes.ask(timeout=0)) is MissingResponse.EXPIRED
    wait_until(lambda: quotes.count_waiting() == 0)


def test_a_second_response_is_suspended(box: Box, quotes: Quotes) -> None:
    """PUB-18, RR-07, RR-08: two ports answer the same request."""
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
def test_a_failed_request_is_suspended_and_its_caller_gets_an_error(
    box: Box, quotes: Quotes, route_failures: bool
) -> None:
    """RR-11: regardless of failed-message routing."""
    box.add_port("Failures", "ErrorReport.ErrorType == 'FailedMessage'")

    def fail(message: Message, attempt: Attempt) -> None:
        if message.context[BTS.SPName] == "Pricing":
            raise DeliveryFailure("The receiver is down.")

    adapter = AnsweringAdapter()
    adapter.behave = fail
    quotes.start(adapter, retry_count=1, retry_seconds=0, route_failures=route_failures)
    assert read_reason(quotes.ask()) is MissingResponse.REFUSED
    assert len([attempt for attempt in adapter.attempts if attempt.port == "Pricing"]) == 2
    if route_failures:
        wait_until(lambda: [sent.port for sent in adapter.sent] == ["Failures"])
    else:
        wait_until(lambda: box.suspended() == [("DELIVERY", True)])
        [request] = list_instances(box.connection, InstanceQuery())
        advice = read_advice(box.connection, request) or ""
        assert "it got the failure as the answer" in advice
        assert f"Then: postroom instance terminate {request.instance_id}" in advice
    assert quotes.count_waiting() == 0


def test_a_response_that_cannot_be_read_is_suspended_and_its_caller_gets_an_error(box: Box, quotes: Quotes) -> None:
    adapter = AnsweringAdapter(lambda body: b"no JSON")
    quotes.start(adapter)
    assert read_reason(quotes.ask()) is MissingResponse.REFUSED
    wait_until(lambda: box.suspended() == [("PIPELINE", False)])
    assert len(adapter.sent) == 1
    assert b"no JSON" in box.bodies()
    wait_until(lambda: box.count("queued") == 0)
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
    assert [row.service_id for row in box.suspended_rows() if row.cause == Cause.FAILURE] == [
        quotes.location.location_id
    ]
    assert (quotes.count_waiting(), len(instance.callers)) == (0, 0)
    assert check(box.connection) == []


def test_a_request_with_several_documents_is_refused(quotes: Quotes) -> None:
    quotes.start()
    lines = pipelines.JsonLines(promote=PROMOTE).model_dump(mode="json")
    quotes.location = quotes.location.replace_settings(pipeline=lines)
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


def test_a_response_that_the_receive_port_cannot_map_is_suspended_and_its_caller_gets_an_error(
    box: Box, quotes: Quotes, tmp_path: Path
) -> None:
    """RR-12."""
    quotes.start(AnsweringAdapter(lambda body: b"<price>5</price>"), pipelines.Xml())
    quotes.map_response(
        '<xsl:template match="/"><xsl:message terminate="yes">no</xsl:message></xsl:template>', tmp_path
    )
    assert read_reason(quotes.ask()) is MissingResponse.REFUSED
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


def test_callers_get_an_error_when_their_host_instance_was_declared_dead(box: Box, quotes: Quotes) -> None:
    """A host that was cut off from the MessageBox finds its waiting requests removed."""
    instance = quotes.start(state="stopped")
    caller = quotes.ask()
    declare_dead(box)
    assert read_reason(caller) is MissingResponse.REFUSED
    wait_until(lambda: instance.registration.regained_locks == 1)


def test_callers_get_an_error_when_the_host_stops(box: Box, quotes: Quotes) -> None:
    instance = quotes.start(state="stopped")
    caller = quotes.ask()
    instance.stop()
    assert caller.future.result(0).missing is MissingResponse.STOPPING
    box.one("SELECT dead_processes_cleanup('0 seconds')")
    assert quotes.count_waiting() == 0


def test_a_response_is_published_only_with_the_completion_of_its_request(box: Box, quotes: Quotes) -> None:
    """PUB-17: another host instance has taken over the request meanwhile, so nothing is published."""

    def answer(body: bytes) -> bytes:
        box.claim_all()
        return EU

    instance = quotes.start(AnsweringAdapter(answer))
    quotes.ask()
    wait_until(lambda: instance.counts["discarded"] == 1)
    assert (box.count("messages"), box.count("claimed")) == (1, 1)
