"""Explanations of where a message is routed and why."""

from __future__ import annotations

import uuid
from decimal import Decimal
from pathlib import Path

import pytest

from postroom import pipelines
from postroom.errors import AuthenticationFailure, DefinitionError, NotFound, PipelineFailure
from postroom.filters.explain import Reason
from postroom.message import Context, Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.configuration.properties import find_property, read_deployed_properties
from postroom.messagebox.subscriptions import ServiceSubscriptions, SubscribingService
from postroom.operations.explain.explanation import (
    FailureHandling,
    ListingLimits,
    MessageExplanation,
    Verdict,
    explain_context,
    explain_file,
    explain_message,
)
from postroom.operations.ports import send_ports as ports
from postroom.operations.properties import parse_context
from postroom.properties import Property
from postroom.system_properties import BTS, ErrorReport
from tests.support.box import PROMOTE, Box, Priority, Region, Total
from tests.support.host_settings import set_trust
from tests.support.many_subscriptions import subscribe_many


def list_verdicts(explained: MessageExplanation) -> list[tuple[str, Verdict]]:
    return [(subscriber.name, subscriber.verdict) for subscriber in explained.subscribers]


def test_receivers_come_first_then_the_nearest_misses(box: Box) -> None:
    box.add_port("Far", "Region == 'US' and Priority == 1 and exists(FILE.ReceivedFileName)")
    box.add_port("Near", "Region == 'EU' and Total >= 10")
    box.add_port("Hit", "Region == 'EU'")
    box.add_port("Asleep", "exists(Region)", state="stopped")
    box.add_port("Bound", "Total < 100", state="bound")
    box.add_port("Directed")
    message = Message.of(b"", promoted={Region: "EU", Total: Decimal(1)})
    box.agent().publish([message])
    [explained] = explain_message(box.connection, message.message_id)
    assert explained.context.promoted == message.context.promoted
    assert explained.accepted
    assert list_verdicts(explained) == [
        ("Hit", Verdict.RECEIVES),
        ("Asleep", Verdict.SUSPENDS),
        ("Bound", Verdict.NOT_ENLISTED),
        ("Near", Verdict.MISSES),
        ("Directed", Verdict.MISSES),
        ("Far", Verdict.MISSES),
    ]


def test_the_verdict_is_what_a_publish_does(box: Box) -> None:
    box.add_port("A", "Region == 'EU' or Priority == 1")
    box.add_port("B", "Total >= 10 and Region != 'TEST'")
    box.add_port("C", "exists(Priority)", state="stopped")
    for promoted in ({Region: "EU"}, {Region: "x", Total: Decimal(10), Priority: 1}, {Priority: 2}):
        explained = explain_context(box.connection, Message.of(promoted=promoted).context, title="")
        accepted = {
            subscriber.name
            for subscriber in explained.subscribers
            if subscriber.verdict in (Verdict.RECEIVES, Verdict.SUSPENDS)
        }
        [published] = box.agent().publish([Message.of(promoted=promoted)])
        assert set(published.subscribers) == accepted


def test_a_written_property_is_reported_as_not_promoted(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    explained = explain_context(box.connection, Context().write(Region, "EU"), title="")
    (predicate,) = explained.subscribers[0].explanation.nearest.predicates
    assert (predicate.reason, predicate.value) == (Reason.NOT_PROMOTED, "EU")
    assert not explained.accepted


def test_a_directed_message_shows_the_matching_filter_group(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    transport = str(box.port().transport_id)
    explained = explain_context(box.connection, Context().promote(BTS.SPTransportID, transport), title="")
    (subscriber,) = explained.subscribers
    assert subscriber.verdict is Verdict.RECEIVES
    assert len(subscriber.explanation.groups) == 2
    undirected = explain_context(box.connection, Context().promote(Region, "US"), title="")
    assert len(undirected.subscribers[0].explanation.groups) == 1
    assert not undirected.subscribers[0].directed_only


def test_a_file_is_read_by_the_pipeline_of_its_location(box: Box, tmp_path: Path) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.add_port("Inbound", "BTS.ReceivePortName == 'OrdersIn'")
    box.add_location(pipelines.JsonLines(promote=PROMOTE))
    path = tmp_path / "orders.jsonl"
    path.write_bytes(b'{"region": "EU"}\n{\n{"region": "US"}\n')
    bad, first, second = explain_file(box.connection, path)
    assert isinstance(bad.failure, PipelineFailure)
    assert (bad.title, first.title, second.title) == tuple(f"orders.jsonl, document {n}" for n in (2, 1, 3))
    assert list_verdicts(first) == [("Europe", Verdict.RECEIVES), ("Inbound", Verdict.RECEIVES)]
    assert list_verdicts(second) == [("Inbound", Verdict.RECEIVES), ("Europe", Verdict.MISSES)]
    changed = list(explain_file(box.connection, path, location="drop", extra=Context().promote(Region, "EU")))
    assert list_verdicts(changed[2])[0] == ("Europe", Verdict.RECEIVES)
    assert box.count("messages") == box.count("suspended") == box.count("receipts") == 0


def test_an_ambiguous_location_is_rejected(box: Box, tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(NotFound, match="no receive location"):
        explain_file(box.connection, path)
    box.add_location()
    with pytest.raises(NotFound, match="cannot be read"):
        explain_file(box.connection, path)
    path.write_bytes(b"{}")
    box.add_location(pipelines.PassThrough(), port="OtherIn", name="other")
    with pytest.raises(DefinitionError, match="several receive locations") as refused:
        explain_file(box.connection, path)
    assert "drop, other" in refused.value.hint
    assert len(list(explain_file(box.connection, path, location="other"))) == 1
    with pytest.raises(NotFound, match="'nowhere'"):
        explain_file(box.connection, path, location="nowhere")


def test_all_subscribers_are_counted_and_the_nearest_are_listed(box: Box) -> None:
    subscribe_many(box, 5_000)
    box.add_port("Hit", "Region == 'R7' or Priority == 1")
    for number in range(3):
        box.add_port(f"Bound{number}", "Region == 'R7'", state="bound")
    [nearest] = [one.service_name for one in box.subscriptions() if one.id == 7]
    context = Context().promote(Region, "R7").promote(Total, Decimal(99))
    explained = explain_context(box.connection, context, title="", limits=ListingLimits(receivers=2, misses=4))
    assert explained.counts == {Verdict.RECEIVES: 1, Verdict.NOT_ENLISTED: 3, Verdict.MISSES: 5_000}
    assert list_verdicts(explained)[:4] == [
        ("Hit", Verdict.RECEIVES),
        ("Bound0", Verdict.NOT_ENLISTED),
        ("Bound1", Verdict.NOT_ENLISTED),
        (nearest, Verdict.MISSES),
    ]
    assert len(explained.subscribers) == 7
    # In the order in which it was written, although it is stored by tables.
    assert [len(group.predicates) for group in explained.subscribers[0].explanation.groups] == [1, 1]


def test_a_group_member_names_the_port_or_group_that_is_not_started(box: Box) -> None:
    box.add_port("Awake", "Region == 'US'")
    box.add_port("Asleep", "Region == 'US'", state="stopped")
    box.add_port("Bound", "Region == 'US'", state="bound")
    members = ("Awake", "Asleep", "Bound")
    box.add_group("Open", members, "Region == 'EU'")
    box.add_group("Shut", members, "Region == 'EU'", state="stopped")
    box.add_group("Away", members, "Region == 'EU'", state="bound")
    explained = explain_context(box.connection, Context().promote(Region, "EU"), title="")
    found = {
        subscriber.name: (subscriber.verdict, [f"{each.kind} {each.name}" for each in subscriber.not_started])
        for subscriber in explained.subscribers
    }
    assert found == {
        "Awake through Open": (Verdict.RECEIVES, []),
        "Asleep through Open": (Verdict.SUSPENDS, ["port Asleep"]),
        "Awake through Shut": (Verdict.SUSPENDS, ["group Shut"]),
        "Asleep through Shut": (Verdict.SUSPENDS, ["port Asleep", "group Shut"]),
        "Bound through Open": (Verdict.NOT_ENLISTED, ["port Bound"]),
        "Bound through Shut": (Verdict.NOT_ENLISTED, ["port Bound", "group Shut"]),
        "Awake through Away": (Verdict.NOT_ENLISTED, ["group Away"]),
        "Asleep through Away": (Verdict.NOT_ENLISTED, ["port Asleep", "group Away"]),
        "Bound through Away": (Verdict.NOT_ENLISTED, ["port Bound", "group Away"]),
        "Awake": (Verdict.MISSES, []),
        "Asleep": (Verdict.MISSES, ["port Asleep"]),
        "Bound": (Verdict.MISSES, ["port Bound"]),
    }


def test_an_unauthorised_host_is_listed_with_the_unmet_predicates(box: Box) -> None:
    thumbprint = Property("Security.Thumbprint", str)
    secure = box.add_host("Secure")
    box.add_host_property(secure.host_id, thumbprint.key, "T")
    box.add_port("Open", "Region == 'EU'")
    box.add_port("Closed", "Region == 'EU'", host="Secure")
    box.add_port("Elsewhere", "Region == 'US'")
    context = Context().promote(Region, "EU").require(thumbprint, "T")
    explained = explain_context(box.connection, context, title="")
    assert list_verdicts(explained) == [
        ("Closed", Verdict.RECEIVES),
        ("Open", Verdict.NOT_AUTHORISED),
        ("Elsewhere", Verdict.MISSES),
    ]
    assert [subscriber.unmet for subscriber in explained.subscribers] == [
        (),
        ((thumbprint.key, "T"),),
        ((thumbprint.key, "T"),),
    ]
    [published] = box.agent().publish([Message(context=context)])
    assert published.subscribers == ("Closed",)
    [find_suspended] = explain_message(box.connection, published.message_id, extra=Context().promote(Priority, 1))
    assert list_verdicts(find_suspended) == list_verdicts(explained)


def test_only_instances_that_wait_for_this_message_are_listed(box: Box) -> None:
    box.add_port("Europe", "Region == 'EU'")
    subscriptions = ServiceSubscriptions(box.host(), ServiceClass.ORCHESTRATIONS)
    service = SubscribingService(service_id=uuid.uuid4(), name="Approval")
    waits = [uuid.uuid4() for _ in range(3)]
    for number, instance_id in enumerate(waits):
        with box.connection.transaction():
            subscriptions.wait(box.connection, service, instance_id, (Region == "EU") & (Priority == number))
    context = Context().promote(Region, "EU").promote(Priority, 1)
    explained = explain_context(box.connection, context, title="")
    assert {subscriber.name for subscriber in explained.subscribers} == {"Europe", f"Approval, instance {waits[1]}"}
    assert explained.counts == {Verdict.RECEIVES: 2}
    [published] = box.agent().publish([Message(context=context)])
    assert published.subscribers == ("Approval", "Europe")
    nobody = explain_context(box.connection, Context().promote(Region, "EU").promote(Priority, 7), title="")
    assert list_verdicts(nobody) == [("Europe", Verdict.RECEIVES)]


def test_written_adapter_properties_are_shown_but_not_used_for_routing(box: Box, tmp_path: Path) -> None:
    box.add_port("ByName", "FILE.ReceivedFileName == '/srv/in folder/order.json'")
    box.add_location(pipelines.PassThrough())
    box.set_locations(uri=Path("/srv/in folder").as_uri())
    path = tmp_path / "order.json"
    path.write_bytes(b"{}")
    [explained] = explain_file(box.connection, path)
    [predicate] = explained.subscribers[0].explanation.nearest.predicates
    assert (predicate.reason, predicate.value) == (Reason.NOT_PROMOTED, "/srv/in folder/order.json")


def find_suspended(box: Box, code: str) -> uuid.UUID:
    """Return the message that its receive location suspended with this error."""
    return next(row.message_id for row in box.suspended_rows() if row.error_code == code and row.resumable)


def test_an_unread_suspended_message_is_read_as_a_resume_would_read_it(box: Box) -> None:
    location = box.add_location(pipelines.Json(promote=PROMOTE))
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'", state="bound")
    box.add_port("Europe", "Region == 'EU'")
    box.receive(location, b'{"region": "MARS", "total": 3}')
    ports.start(box.connection, "Audit")
    message_id = find_suspended(box, "ROUTING")
    [explained] = explain_message(box.connection, message_id)
    assert explained.title == f"Message {message_id}, as drop reads it now, document 1"
    assert (explained.context[Region], explained.context[Total]) == ("MARS", Decimal(3))
    assert explained.context[BTS.SourceParty] == "test"
    assert list_verdicts(explained) == [("Audit", Verdict.RECEIVES), ("Europe", Verdict.MISSES)]
    [missed] = explained.subscribers[1].explanation.nearest.predicates
    assert (missed.reason, missed.value) == (Reason.DIFFERS, "MARS")
    [changed] = explain_message(box.connection, message_id, extra=Context().promote(Region, "EU"))
    assert ("Europe", Verdict.RECEIVES) in list_verdicts(changed)


def test_an_unreadable_message_has_a_failure_and_no_receivers(box: Box) -> None:
    location = box.add_location(pipelines.Json(promote=PROMOTE))
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    box.receive(location, b'{"region": ')
    message_id = find_suspended(box, "PIPELINE")
    [explained] = explain_message(box.connection, message_id)
    assert isinstance(explained.failure, PipelineFailure)
    assert not explained.subscribers
    assert not explained.accepted
    box.forget_services()
    [nowhere] = explain_message(box.connection, message_id)
    assert nowhere.failure is not None
    assert "not deployed any more" in nowhere.failure.what


def test_an_unread_batch_is_explained_by_its_first_documents(box: Box) -> None:
    location = box.add_location(pipelines.JsonLines(promote=PROMOTE, recoverable=False))
    box.add_port("Europe", "Region == 'EU'")
    box.receive(location, b'{"region": "EU"}\n{"region": "US"}\n{"region": "JP"}\n')
    first, second = explain_message(box.connection, find_suspended(box, "ROUTING"), documents=2)
    assert [message.context[Region] for message in (first, second)] == ["EU", "US"]
    assert (first.accepted, second.accepted) == (True, False)


def test_an_unknown_message_is_not_found(box: Box) -> None:
    with pytest.raises(NotFound):
        explain_message(box.connection, uuid.uuid4())


def test_properties_are_found_by_full_or_short_name(box: Box) -> None:
    known = read_deployed_properties(box.connection)
    assert find_property("Orders.Region", known) == find_property("Region", known) == Region
    assert find_property("BTS.MessageType", known) == BTS.MessageType
    with pytest.raises(NotFound, match=r"Orders\.Region"):
        find_property("Orders.Regoin", known)
    twice = [Region, Property("Other.Region", str)]
    with pytest.raises(DefinitionError, match=r"Orders\.Region or Other\.Region"):
        find_property("Region", twice)


def test_values_are_parsed_by_property_type(box: Box) -> None:
    known = read_deployed_properties(box.connection)
    context = parse_context(["Orders.Total=12.50", "Region=a=b"], ["Priority=3"], known)
    assert dict(context.promoted) == {Total.key: Decimal("12.50"), Region.key: "a=b"}
    assert dict(context.written) == {Priority.key: 3}
    with pytest.raises(DefinitionError, match=r"Orders.Total.*not a decimal number"):
        parse_context(["Orders.Total=much"], [], known)
    with pytest.raises(DefinitionError, match="has no value"):
        parse_context(["Orders.Total"], [], known)


def test_the_error_message_of_a_port_that_routes_failures_is_explained(box: Box, tmp_path: Path) -> None:
    box.add_location(pipelines.Json(promote=PROMOTE), route_failures=True)
    box.add_port("Errors", "ErrorReport.ReceivePortName == 'OrdersIn'")
    box.add_port("Audit", "BTS.ReceivePortName == 'OrdersIn'")
    (tmp_path / "bad.json").write_bytes(b"{broken")
    unreadable, error = explain_file(box.connection, tmp_path / "bad.json")
    assert isinstance(unreadable.failure, PipelineFailure)
    assert unreadable.failure_handling is FailureHandling.ROUTED
    assert list_verdicts(error) == [("Errors", Verdict.RECEIVES), ("Audit", Verdict.MISSES)]
    [missed] = error.subscribers[1].explanation.nearest.predicates
    assert missed.reason is Reason.NOT_PROMOTED
    assert error.context[ErrorReport.FailureCode] == "0xe0000001"


def test_a_message_without_subscriber_is_followed_by_its_error_message(box: Box, tmp_path: Path) -> None:
    box.add_port("Europe", "Region == 'EU'")
    box.add_location(pipelines.Json(promote=PROMOTE), route_failures=True)
    box.add_location(pipelines.Json(promote=PROMOTE), port="PlainIn", name="plain")
    path = tmp_path / "nobody.json"
    path.write_bytes(b'{"region": "US"}')
    lost, error = explain_file(box.connection, path, location="drop")
    assert (lost.failure_handling, error.accepted, error.is_error) == (FailureHandling.SUSPENDED, False, True), (
        "no subscriber"
    )
    box.add_port("Errors", "ErrorReport.FailureCode == '0xc0c01680' and exists(ErrorReport.RoutingFailureReportID)")
    lost, error = explain_file(box.connection, path, location="drop")
    assert lost.failure_handling is FailureHandling.ROUTED
    assert list_verdicts(error)[0] == ("Errors", Verdict.RECEIVES)
    [elsewhere] = explain_file(box.connection, path, location="plain")
    assert elsewhere.failure_handling is FailureHandling.SUSPENDED
    path.write_bytes(b'{"region": "EU"}')
    [received] = explain_file(box.connection, path, location="drop")
    assert received.failure_handling is None


@pytest.mark.parametrize(
    ("authentication", "trusted", "ends"),
    [
        ("none", True, [None, None]),
        ("drop", True, [None, FailureHandling.DROPPED]),
        ("drop", False, [FailureHandling.DROPPED, FailureHandling.DROPPED]),
        ("keep", True, [FailureHandling.SUSPENDED, None]),
    ],
)
def test_a_message_without_authenticated_originator_is_dropped_or_suspended(
    box: Box, tmp_path: Path, authentication: str, trusted: bool, ends: list[FailureHandling | None]
) -> None:
    """SEC-11: explain applies the authentication of the receive port."""
    box.add_port("Europe", "Region == 'EU'")
    set_trust(box.connection, box.host().host_id, trusted)
    who = {BTS.OriginatorSID: "account", BTS.OriginatorPID: "party"}
    box.add_location(pipelines.JsonLines(promote={Region: "region", **who}))
    box.set_authentication(authentication)
    path = tmp_path / "orders.jsonl"
    path.write_bytes(b'{"region": "EU", "account": "anna", "party": "Contoso"}\n{"region": "EU"}')
    explained = explain_file(box.connection, path)
    assert [explanation.failure_handling for explanation in explained] == ends
    assert [isinstance(explanation.failure, AuthenticationFailure) for explanation in explained] == [
        end is not None for end in ends
    ]
    assert [explanation.accepted for explanation in explained] == [end is None for end in ends]
