from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest

from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE
from postroom.pipelines import Json, load_pipeline
from postroom.pipelines.documents.disassembled_batch import MAX_DOCUMENT_SIZE
from postroom.properties import Property
from tests.unit.pipelines.conftest import Receive

Region = Property("Orders.Region", str)
Priority = Property("Orders.Priority", int)
Total = Property("Orders.Total", Decimal)
Weight = Property("Orders.Weight", float)
Paid = Property("Orders.Paid", bool)
Due = Property("Orders.Due", datetime)


def promote_one(receive: Receive, prop: Property, written: str) -> Any:
    received = receive(Json(promote={prop: "value"}), b'{"value": %s, "rest": [1, {"a": null}]}' % written.encode())
    return received.rows[0][prop.key]


def test_the_body_is_the_interchange(receive: Receive) -> None:
    document = b' {"region": "EU",\r\n "total": 10.10}\n'
    (row,) = receive(Json(promote={Region: "region"}, message_type="order"), document).rows
    assert row == {
        "number": 1,
        "body": document,
        "offset": None,
        "length": None,
        "message_type": "order",
        Region.key: "EU",
    }


@pytest.mark.parametrize("document", [b"[1, 2]", b'"text"', b"17", b"null", b'{"a": 1}'])
def test_any_json_value_is_a_document_where_nothing_is_promoted(receive: Receive, document: bytes) -> None:
    received = receive(Json(), document)
    assert received.bodies == [document]
    assert received.column("message_type") == [None]


def test_a_byte_order_mark_stays_in_the_body(receive: Receive) -> None:
    document = b'\xef\xbb\xbf{"region": "EU"}'
    (row,) = receive(Json(promote={Region: "region"}), document).rows
    assert (row["body"], row[Region.key]) == (document, "EU")


def test_nested_paths_and_keys_with_dots(receive: Receive) -> None:
    pipeline = Json(promote={Region: "customer.address.region", Total: r"sums.net\.eur", Priority: "priorité"})
    document = rb'{"customer": {"address": {"region": "EU"}}, "sums": {"net.eur": 1.5}, "priorit\u00e9": 3}'
    (row,) = receive(pipeline, document).rows
    assert (row[Region.key], row[Total.key], row[Priority.key]) == ("EU", Decimal("1.5"), 3)


@pytest.mark.parametrize(
    "document", [b"{}", b'{"customer": null}', b'{"customer": {}}', b'{"customer": {"region": null}}']
)
def test_an_absent_or_null_value_is_not_promoted(receive: Receive, document: bytes) -> None:
    assert receive(Json(promote={Region: "customer.region"}), document).column(Region.key) == [None]


@pytest.mark.parametrize(
    ("prop", "written", "value"),
    [
        (Region, '"EU"', "EU"),
        (Region, '""', ""),
        (Region, r'"\u00e9\ud83d\ude00\n"', "é😀\n"),
        (Region, f'"{"x" * 256}"', "x" * 256),
        (Priority, "0", 0),
        (Priority, "-0", 0),
        (Priority, "9223372036854775807", 2**63 - 1),
        (Priority, "-9223372036854775808", -(2**63)),
        (Priority, "3.0", 3),
        (Priority, "3e2", 300),
        (Priority, "9223372036854775807.0", 2**63 - 1),
        (Total, "10.10", Decimal("10.10")),
        (Total, '"10.10"', Decimal("10.10")),
        (Total, "0.1", Decimal("0.1")),
        (Total, "1e5", Decimal(100000)),
        (Total, "0e400", Decimal(0)),
        (Total, "-99999999999999999999999999999999999999", Decimal(-(10**38) + 1)),
        (Total, "12345678901234567890.123456789012345678", Decimal("12345678901234567890.123456789012345678")),
        (Total, "1" + "0" * 37 + "." + "0" * 60, Decimal(10**37)),
        (Weight, "1", 1.0),
        (Weight, "1.25e2", 125.0),
        (Weight, "12345678901234567890123", 1.2345678901234568e22),
        (Paid, "true", True),
        (Paid, "false", False),
        (Due, '"2026-01-31T12:00:00Z"', datetime(2026, 1, 31, 12, tzinfo=UTC)),
        (Due, '"2026-01-31T12:00:00.123456+02:00"', datetime(2026, 1, 31, 10, 0, 0, 123456, tzinfo=UTC)),
    ],
)
def test_values_are_promoted_by_type(receive: Receive, prop: Property, written: str, value: object) -> None:
    promoted = promote_one(receive, prop, written)
    assert promoted == value
    assert type(promoted) is type(value)


def test_a_float_is_never_minus_zero(receive: Receive) -> None:
    assert str(promote_one(receive, Weight, "-0.0")) == "0.0"


@pytest.mark.parametrize(("type_", "written"), [(int, '"4111"'), (int, "4111.5"), (str, "4111"), (Decimal, '"4111x"')])
def test_a_sensitive_value_that_cannot_be_promoted_is_not_quoted(receive: Receive, type_: type, written: str) -> None:
    """SEC-14: also after the definition was stored."""
    definition = Json(promote={Property("Payments.Card", type_, sensitive=True): "value"})
    stored = load_pipeline(definition.model_dump(mode="json"))
    assert isinstance(stored, Json)
    assert stored == definition
    assert stored != Json(promote={Property("Payments.Card", type_): "value"})
    for pipeline in (definition, stored):
        with pytest.raises(PipelineFailure) as raised:
            receive(pipeline, f'{{"value": {written}}}'.encode())
        assert "4111" not in str(raised.value)
        assert "Payments.Card cannot be promoted from 'value'." in str(raised.value)


@pytest.mark.parametrize(
    ("prop", "written", "reason"),
    [
        (Region, "5", "5 is not a JSON string"),
        (Region, "true", "true is not a JSON string"),
        (Region, '["EU"]', '["EU"] is not a JSON string'),
        (Region, f'"{"x" * 257}"', "at most 256 characters, this one has 257"),
        (Region, r'"a\u0000b"', "NUL"),
        (Priority, "1.5", "1.5 is not a whole number"),
        (Priority, '"1"', '"1" is not a JSON number'),
        (Priority, "true", "true is not a JSON number"),
        (Priority, "9223372036854775808", "does not fit into a signed 64-bit integer"),
        (Priority, "1e400", "1E+400 has more than 38 digits"),
        (Priority, "1" * 5000, "is not a whole number"),
        (Total, "1e400", "1E+400 has more than 38 digits"),
        (Total, "1e99999999999999999999", "is not a decimal number"),
        (Total, '"1_000"', "'1_000' is not a decimal number"),
        (Total, '"NaN"', "NaN is not a finite Decimal"),
        (Total, '"ten"', "'ten' is not a decimal number"),
        (Total, "true", "true is not a JSON number or string"),
        (Total, "{}", "{} is not a JSON number or string"),
        (Weight, '"1"', '"1" is not a JSON number'),
        (Weight, "1e400", "inf is not a finite float"),
        (Weight, "false", "false is not a JSON number"),
        (Paid, "1", "1 is not true or false"),
        (Paid, '"true"', '"true" is not true or false'),
        (Due, "1769860800", "is not a JSON string with a date and time"),
        (Due, '"tomorrow"', "'tomorrow' is not a date and time"),
        (Due, '"0001-01-01T00:00:00+02:00"', "is outside the years 1 to 9999"),
    ],
)
def test_a_value_that_cannot_be_promoted_fails(receive: Receive, prop: Property, written: str, reason: str) -> None:
    with pytest.raises(PipelineFailure) as raised:
        promote_one(receive, prop, written)
    assert raised.value.what == f"{prop.dotted_name} cannot be promoted from 'value'."
    assert reason in raised.value.why
    assert len(raised.value.why) < 400
    assert raised.value.hint


@pytest.fixture
def local_time_in_new_york(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "America/New_York")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("local_time_in_new_york")
def test_a_time_without_a_zone_is_local_time(receive: Receive) -> None:
    assert promote_one(receive, Due, '"2026-01-31T12:00:00"') == datetime(2026, 1, 31, 17, tzinfo=UTC)
    assert promote_one(receive, Due, '"2026-07-31"') == datetime(2026, 7, 31, 4, tzinfo=UTC)


def test_the_last_value_of_a_duplicate_key_is_used(receive: Receive) -> None:
    pipeline = Json(promote={Region: "customer.region"})
    twice = b'{"customer": {"region": "EU", "region": "US"}}'
    assert receive(pipeline, twice).column(Region.key) == ["US"]
    assert receive(pipeline, b'{"customer": {"region": "EU"}, "customer": {}}').column(Region.key) == [None]


def test_one_path_can_feed_properties_of_two_types(receive: Receive) -> None:
    pipeline = Json(promote={Total: "total", Weight: "total"})
    (row,) = receive(pipeline, b'{"total": 10.10}').rows
    assert (row[Total.key], row[Weight.key]) == (Decimal("10.10"), 10.1)


@dataclass
class Malformed:
    document: bytes
    what: str
    why: str = ""


@pytest.mark.parametrize(
    "case",
    [
        Malformed(b"", "The interchange is empty."),
        Malformed(b" \n", "The interchange is empty."),
        Malformed(b"\xef\xbb\xbf", "The interchange is empty."),
        Malformed(b'{"region": "EU"', "it ends early, after byte 15"),
        Malformed(b'{"region":\n\n', "it ends early, after line 1, byte 10"),
        Malformed(b'{"region":\n "EU"', "it ends early, after line 2, byte 5"),
        Malformed(b'{"a": [1,2,}}', "not valid JSON at byte 12", "invalid character."),
        Malformed(b'{"region": "EU",\n "a": 01}', "not valid JSON at line 2, byte 8", "invalid number"),
        Malformed(b'{"region": "EU"} x', "not valid JSON at byte", "trailing characters"),
        Malformed(b'{"region": "EU"}{}', "not valid JSON at byte", "trailing characters"),
        Malformed(b'{"a": NaN}', "not valid JSON at byte 7"),
        Malformed(b"{'a': 1}", "not valid JSON at byte 2"),
        Malformed(b'{"a": "\t"}', "not valid JSON at byte 8"),
        Malformed(b'{"a": "\xff"}', "not UTF-8 at byte 8", "0xff"),
        Malformed(b'{"\xe9": 1}', "not UTF-8 at byte 3", "0xe9"),
        Malformed(b'{"a": "\xed\xa0\x80"}', "not UTF-8 at byte 8"),
        Malformed(b'{"a": "\\ud800"}', "not valid JSON at byte 8", r"\ud800 is one half of a surrogate pair"),
        Malformed(b'{"a": "\\ud800 and so on"}', "not valid JSON at byte 8", r"\ud800 is one half"),
        Malformed(b'{"a": "\\udc00"}', "not valid JSON at byte 8", r"\udc00 is one half"),
        Malformed(b"[]", "The document is not a JSON object.", "got `array`"),
        Malformed(b'"EU"', "The document is not a JSON object.", "got `str`"),
        Malformed(b'{"customer": "Acme"}', "'customer' is not an object.", "got `str`"),
        Malformed(b'{"customer": [{"name": "Acme"}]}', "'customer' is not an object.", "got `array`"),
        Malformed(b'{"a": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", "nested too deeply"),
        Malformed("{}".encode("utf-16"), "The interchange is in UTF-16."),
    ],
    ids=lambda case: repr(case.document[:24]),
)
def test_a_malformed_document_fails_with_the_position(receive: Receive, case: Malformed) -> None:
    name = Property("Orders.CustomerName", str)
    with pytest.raises(PipelineFailure) as raised:
        receive(Json(promote={Region: "region", name: "customer.name"}), case.document)
    assert case.what in raised.value.what
    assert case.why in raised.value.why
    assert raised.value.hint


@pytest.mark.parametrize("document", [b'{"a": [1, 2,]}', b'{"a": "\xff"}', b'{"a": 1'])
def test_a_malformed_document_fails_also_without_promotions(receive: Receive, document: bytes) -> None:
    with pytest.raises(PipelineFailure):
        receive(Json(), document)


def test_a_large_document_is_passed_by_reference(receive: Receive) -> None:
    def document(size: int) -> bytes:
        return b'{"region": "EU", "pad": "%s"}' % (b"x" * (size - 27))

    pipeline = Json(promote={Region: "region"})
    (small,) = receive(pipeline, document(FRAGMENT_SIZE)).rows
    (large,) = receive(pipeline, document(FRAGMENT_SIZE + 1)).rows
    assert (len(small["body"]), small["offset"], small["length"]) == (FRAGMENT_SIZE, None, None)
    assert (large["body"], large["offset"], large["length"]) == (None, 0, FRAGMENT_SIZE + 1)
    assert large[Region.key] == "EU"


class UnreadableBody:
    size = MAX_DOCUMENT_SIZE + 1

    def chunks(self) -> Iterator[bytes]:
        raise AssertionError("It is too large to be read.")


def test_a_document_above_the_maximum_size_fails_without_being_read(receive: Receive) -> None:
    """LRG-05."""
    with pytest.raises(PipelineFailure, match="67,108,865 bytes, which is more than a pipeline can read"):
        receive(Json(), UnreadableBody())
