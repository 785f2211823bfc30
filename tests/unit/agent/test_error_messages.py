"""The context of an error message: the original demoted, the error report promoted (FMR-03, 04, 10)."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from postroom.agent.error_messages import FAILURE_CODES, Failure, is_error_report, to_failure_code
from postroom.errors import (
    AuthenticationFailure,
    BadValue,
    DeliveryFailure,
    DeliveryRefused,
    PipelineFailure,
    PostroomError,
    RoutingFailure,
)
from postroom.filters.evaluate import matches
from postroom.filters.text import parse
from postroom.message import Context
from postroom.properties import Property
from postroom.system_properties import BTS, SYSTEM_PROPERTIES, ErrorReport

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
NOW = datetime(2026, 1, 31, 12, tzinfo=UTC)
MESSAGE, INSTANCE, REPORT = uuid.uuid4(), uuid.uuid4(), uuid.uuid4()
ORIGINAL = (
    Context()
    .promote(Region, "EU")
    .promote(BTS.MessageType, "order")
    .write(Total, Decimal("1.5"))
    .write(BTS.SPName, "x")
)


def failure(**overrides: object) -> Failure:
    defaults: dict[str, object] = {
        "code": "DELIVERY",
        "description": "The server is not reachable.",
        "message_id": MESSAGE,
        "instance_id": INSTANCE,
        "failed_at": NOW,
    }
    return Failure(**{**defaults, **overrides})  # type: ignore[arg-type]


def test_all_properties_of_the_original_are_kept_and_none_is_promoted() -> None:
    context = failure(send_port="Web", uri="http://example.com", message_type="order").build_context(ORIGINAL)
    assert all(key.startswith("ErrorReport#") for key in context.promoted)
    for prop in (Region, BTS.MessageType, Total, BTS.SPName):
        assert context[prop] == ORIGINAL[prop]
    assert Context.from_json(context.to_json()) == context


def test_a_failure_at_a_send_port_names_the_port_and_its_uri() -> None:
    context = failure(send_port="Web", uri="http://example.com", adapter="http", message_type="order").build_context(
        ORIGINAL
    )
    assert context.promoted == {
        ErrorReport.ErrorType.key: "FailedMessage",
        ErrorReport.FailureCode.key: "0xc0c0167a",
        ErrorReport.FailureCategory.key: 0,
        ErrorReport.MessageType.key: "order",
        ErrorReport.SendPortName.key: "Web",
        ErrorReport.OutboundTransportLocation.key: "http://example.com",
    }
    assert context[ErrorReport.Description] == "The server is not reachable."
    assert context[ErrorReport.FailureTime] == NOW
    assert context[ErrorReport.FailureMessageID] == str(MESSAGE)
    assert context[ErrorReport.FailureInstanceID] == str(INSTANCE)
    assert context[ErrorReport.FailureAdapter] == "http"
    assert context[ErrorReport.ProcessingServer]


def test_a_failure_at_a_receive_port_names_the_port_the_location_and_the_report() -> None:
    context = failure(code="ROUTING", receive_port="OrdersIn", uri="file:///in", report_id=REPORT).build_context(
        ORIGINAL
    )
    promoted = context.promoted
    assert promoted[ErrorReport.ReceivePortName.key] == "OrdersIn"
    assert promoted[ErrorReport.InboundTransportLocation.key] == "file:///in"
    assert promoted[ErrorReport.RoutingFailureReportID.key] == str(REPORT)
    assert promoted[ErrorReport.FailureCode.key] == "0xc0c01680"
    for absent in (ErrorReport.SendPortName, ErrorReport.OutboundTransportLocation, ErrorReport.MessageType):
        assert absent not in context


def test_only_filters_on_error_reports_match_an_error_message() -> None:
    promoted = failure(send_port="Web", message_type="order").build_context(ORIGINAL).promoted

    def is_match(text: str) -> bool:
        return matches(parse(text, [*SYSTEM_PROPERTIES.values(), Region]), promoted)

    assert is_match("ErrorReport.ErrorType == 'FailedMessage'")
    assert is_match("ErrorReport.SendPortName == 'Web' and ErrorReport.MessageType == 'order'")
    assert not is_match("BTS.MessageType == 'order'")
    assert not is_match("Orders.Region == 'EU'")
    assert not is_match("ErrorReport.SendPortName == 'Other'")


def test_a_long_promoted_value_is_truncated_and_a_description_accepts_any_text() -> None:
    context = failure(description="a\0b\ud800" + "x" * 9000, send_port="Web", uri="u" * 300).build_context(ORIGINAL)
    assert context[ErrorReport.OutboundTransportLocation] == "u" * 256
    assert str(context[ErrorReport.Description]).startswith("a\\0b?xxx")
    assert Context.from_json(context.to_json()) == context


def test_an_error_report_is_recognised_by_its_promoted_type() -> None:
    report = failure(send_port="Web").build_context(ORIGINAL)
    assert is_error_report(report)
    assert not is_error_report(ORIGINAL)
    assert not is_error_report(ORIGINAL.write(ErrorReport.ErrorType, "FailedMessage"))


def test_a_report_about_an_error_message_does_not_contain_the_first_report() -> None:
    first = failure(receive_port="OrdersIn", uri="file:///in").build_context(ORIGINAL)
    second = failure(send_port="Web").build_context(first)
    assert ErrorReport.ReceivePortName not in second


@pytest.mark.parametrize(
    "error", [PipelineFailure, RoutingFailure, DeliveryFailure, DeliveryRefused, AuthenticationFailure, BadValue]
)
def test_every_failure_of_a_message_has_its_own_failure_code(error: type[PostroomError]) -> None:
    assert error.code in FAILURE_CODES
    assert len(set(FAILURE_CODES.values())) == len(FAILURE_CODES)


def test_a_code_of_an_adapter_has_a_failure_code() -> None:
    assert to_failure_code("SAP_LOGON") == "0xe0000000"
