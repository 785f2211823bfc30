"""Text filters: parsing, formatting and the position of errors."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal

import pytest

from postroom.errors import BadFilter
from postroom.filters.evaluate import matches
from postroom.filters.expression import Filter
from postroom.filters.text import format_filter, parse
from postroom.message import Context
from postroom.properties import Property
from postroom.system_properties import BTS, ErrorReport

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)
Weight = Property("Orders.Weight", float)
Paid = Property("Orders.Paid", bool)
Due = Property("Orders.Due", datetime)
Partner = Property("Region", str, namespace="http://example.org/partners")
PROPERTIES = [Region, Total, Priority, Weight, Paid, Due, BTS.ReceivePortName]


@pytest.mark.parametrize(
    ("text", "filter"),
    [
        (
            "Region == 'EU' and Total >= 10000 or exists(Priority)",
            (Region == "EU") & (Total >= 10_000) | Priority.exists(),
        ),
        ("Orders.Region != 'EU'", Region != "EU"),
        ("BTS.ReceivePortName == 'OrdersIn'", BTS.ReceivePortName == "OrdersIn"),
        (
            "{http://schemas.microsoft.com/BizTalk/2003/system-properties}ReceivePortName == 'OrdersIn'",
            BTS.ReceivePortName == "OrdersIn",
        ),
        ('Region == "EU"', Region == "EU"),
        ("Priority & 4", Priority.bitand(4)),
        ("Priority<-5 AND(Total<=.5 OR Total>1e3)", (Priority < -5) & ((Total <= Decimal("0.5")) | (Total > 1000))),
        ("Paid == true or Paid != FALSE", (Paid == True) | (Paid != False)),  # noqa: E712
        ("Weight > 0.1", Weight > 0.1),
        ("Due < '2026-01-31T12:00:00+02:00'", Due < datetime(2026, 1, 31, 10, tzinfo=UTC)),
        ("Due < '2026-01-31T12:00:00Z'", Due < datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (r"Region == 'it\'s C:\\in \u{1f600}'", Region == "it's C:\\in \U0001f600"),
        ("Region == 'a\nb'", Region == "a\nb"),
        ("\n  Priority == 1\n  or Priority == 2\n", (Priority == 1) | (Priority == 2)),
    ],
)
def test_a_text_filter_equals_its_expression(text: str, filter: Filter) -> None:
    """FLT-02."""
    assert parse(text, PROPERTIES) == filter


def test_properties_of_error_reports_need_their_namespace() -> None:
    """Their names exist in other namespaces too, and the bare name means the other property."""
    known = [BTS.MessageType, ErrorReport.MessageType, ErrorReport.Description, Property("Orders.Description", str)]
    assert parse("MessageType == 'x'", known) == (BTS.MessageType == "x")
    assert parse("ErrorReport.MessageType == 'x'", known) == (ErrorReport.MessageType == "x")
    assert parse("Description == 'x'", known).groups[0][0].property.dotted_name == "Orders.Description"
    with pytest.raises(BadFilter, match="no property Description"):
        parse("Description == 'x'", [ErrorReport.Description])


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("9.4", 9),
        ("9.5", 10),
        ("9.9", 10),
        ("-9.5", -10),
        ("'9.5'", 10),
        ("1e1", 10),
        ("9223372036854775807.4", 2**63 - 1),
    ],
)
def test_decimal_text_for_an_int_property_is_rounded(written: str, expected: int) -> None:
    assert parse(f"Priority == {written}", PROPERTIES) == (Priority == expected)


def test_a_bare_name_must_be_unique() -> None:
    with pytest.raises(
        BadFilter, match=r"Region could be Orders\.Region \(str\) or \{http://example.org/partners\}Region"
    ):
        parse("Region == 'EU'", [Region, Partner])
    assert parse("{http://example.org/partners}Region == 'EU'", [Region, Partner]) == (Partner == "EU")
    assert parse("Region == 'EU'", [Region, Property("Orders.Region", str)]) == (Region == "EU")


def test_transport_types_are_compared_case_insensitively() -> None:
    """CTX-18."""
    known = [Property.from_key(BTS.InboundTransportType.key, BTS.InboundTransportType.value_type)]
    filter = parse("InboundTransportType == 'File'", known)
    assert format_filter(filter) == "BTS.InboundTransportType == 'FILE'"
    assert filter == (BTS.InboundTransportType == "file")
    for case in ("FILE", "file", "File"):
        assert matches(filter, Context().promote(BTS.InboundTransportType, case).promoted)
    assert not matches(BTS.ReceivePortName == "in", Context().promote(BTS.ReceivePortName, "In").promoted)


def test_the_short_form_of_a_namespace_equals_the_namespace() -> None:
    """CTX-19."""
    same = Property("ReceivePortName", str, namespace="BTS")
    assert same == BTS.ReceivePortName
    assert parse("{BTS}ReceivePortName == 'x'", [BTS.ReceivePortName]) == (BTS.ReceivePortName == "x")


def test_a_namespace_can_contain_any_character() -> None:
    odd = Property("X", int, namespace="a{b}\\\n'\"é")
    text = format_filter(odd == 1)
    assert text == "{a\\{b\\}\\\\\\u{a}'\"é}X == 1"
    assert parse(text, [odd]) == (odd == 1)


def test_properties_named_like_keywords_need_their_namespace() -> None:
    exists, either = Property("Orders.Exists", int), Property("or.And", int)
    text = format_filter(exists.exists() | (either == 1))
    assert text == "exists(Orders.Exists) or or.And == 1"
    assert parse(text, [exists, either]) == exists.exists() | (either == 1)


@pytest.mark.parametrize(
    ("filter", "text"),
    [
        ((Total >= 10_000) & (Region != "TEST") | (Priority == 1),
         "Orders.Total >= 10000 and Orders.Region != 'TEST' or Orders.Priority == 1"),
        (Due == datetime(2026, 1, 31, 12, 0, 0, 5, tzinfo=UTC), "Orders.Due == '2026-01-31T12:00:00.000005Z'"),
        (Paid != True, "Orders.Paid != true"),  # noqa: E712
        (Region == "it's\ta\x1b[0m\\", r"Orders.Region == 'it\'s\u{9}a\u{1b}[0m\\'"),
        (Total == Decimal("1E+37"), "Orders.Total == 1E+37"),
        (Weight == 1e300, "Orders.Weight == 1e+300"),
        (Priority.bitand(-1) & Priority.exists(), "Orders.Priority & -1 and exists(Orders.Priority)"),
    ],
)  # fmt: skip
def test_a_filter_is_formatted_as_one_printable_line(filter: Filter, text: str) -> None:
    assert format_filter(filter) == text
    assert text.isprintable()
    assert parse(text, PROPERTIES) == filter


@pytest.mark.parametrize(
    ("text", "position", "expected"),
    [
        ("Regoin == 'EU'", 0, "There is no property Regoin.*Did you mean Region"),
        ("Sales.Region == 'EU'", 0, r"There is no property Sales\.Region.*Orders\.Region"),
        ("Xyzzy == 1", 0, "app.property"),
        ("Region == EU", 10, "'EU' is found where a value is expected.*quotes"),
        ("Region == 5", 10, "Orders.Region is text, and 5 is not.*'5'"),
        ("Region == true", 10, "Orders.Region is text"),
        ("Region == ''", 10, "empty string"),
        ("Region == 'EU", 10, "quote is not closed"),
        ("Region = 'EU'", 7, "Write =="),
        ("Region <> 'EU'", 7, "Write !="),
        ("Region == 'EU' && Priority == 1", 15, "Write and"),
        ("Region == 'EU' || Priority == 1", 15, "Write or"),
        ("!exists(Region)", 0, "Filters have no operator not"),
        ("not exists(Region)", 0, "Filters have no operator not"),
        (r"Region == 'C:\temp'", 13, r"\\t is not an escape.*Write \\\\"),
        (r"Region == '\u{110000}'", 11, "not an escape"),
        (r"Region == '\u{d800}'", 10, "surrogate"),
        ("Priority == 'nine'", 12, "not a whole number"),
        ("Priority == inf", 12, "value is expected"),
        ("Priority == 1_000", 12, "1_000 does not belong"),
        ("Priority == 9223372036854775807.5", 12, "64-bit"),
        ("Priority & 4.5", 11, "not a whole number"),
        ("Weight & 4", 9, "needs an int property"),
        ("Weight == 1e999", 10, "finite"),
        ("Paid > true", 7, "only be compared with == and !="),
        ("Paid == 2", 8, "not true or false"),
        ("Due == 'tomorrow'", 7, "not a date and time"),
        ("Priority ==", 11, "ends where a value"),
        ("Priority", 8, "ends where ==, !="),
        ("Priority == 1 and", 17, "ends where a property"),
        ("(Priority == 1", 14, "ends where a closing parenthesis"),
        ("Priority == 1)", 13, "'\\)' is found where and, or, or the end"),
        ("exists Priority", 7, r"'Priority' is found where \( and a property"),
        ("exists(Priority", 15, "closing parenthesis"),
        ("exists('x')", 7, "a property is expected"),
        ("5 < Priority", 0, "'5' is found where a property"),
        ("{http://x} == 1", 0, "followed by the property's name"),
        ("Region in ['EU']", 7, "one at a time"),
        ("Region in 'EU'", 7, "'in' is found where =="),
        ("Priority == 1 $", 14, r"\$ does not belong"),
        ("(" * 101 + "Priority == 1" + ")" * 101, 100, "nested more than 100"),
    ],
)  # fmt: skip
def test_an_error_points_at_the_character(text: str, position: int, expected: str) -> None:
    """FLT-08."""
    with pytest.raises(BadFilter) as caught:
        parse(text, PROPERTIES)
    message = str(caught.value).replace("\n", " ")
    assert re.search(expected, message), message
    excerpt, caret = caught.value.why.split("\n")
    first = max(0, position - 60)
    assert excerpt[2:] == text[first : position + 60]
    assert caret == " " * (2 + position - first) + "^"


def test_the_error_shows_the_line_with_the_caret() -> None:
    with pytest.raises(BadFilter) as caught:
        parse("Priority == 1\n  or Priority == 'x'\n  or Priority == 2", PROPERTIES)
    assert caught.value.why == "    or Priority == 'x'\n" + " " * 19 + "^"
    assert "at line 2, character 18" in caught.value.what


@pytest.mark.parametrize("text", ["", "  \n"])
def test_an_empty_text_is_rejected(text: str) -> None:
    """PRED-11."""
    with pytest.raises(BadFilter, match="empty"):
        parse(text, PROPERTIES)


def test_the_number_of_groups_of_a_text_is_limited() -> None:
    ten = " or ".join(f"Priority == {i}" for i in range(10))
    with pytest.raises(BadFilter, match="groups"):
        parse(" and ".join([f"({ten})", *(f"({ten.replace('Priority', p)})" for p in ("Total", "Weight", "Priority"))]),
              PROPERTIES)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "position", "hint"),
    [
        ("Region & 4", 9, "To join two comparisons write and."),
        ("Region in ('EU', 'UK')", 7, "join comparisons with and or or"),
        ("Nobody == 1", 0, "app.property(...)"),
    ],
)
def test_the_error_has_a_hint(text: str, position: int, hint: str) -> None:
    with pytest.raises(BadFilter) as caught:
        parse(text, PROPERTIES)
    assert hint in caught.value.hint
    assert caught.value.why.splitlines()[1] == " " * (2 + position) + "^"
