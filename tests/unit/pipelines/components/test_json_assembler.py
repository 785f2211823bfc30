"""The JSON assembler: demotion and envelopes, the inverse of ``pipelines.Json`` (CTX-26)."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import PipelineFailure
from postroom.message import Message
from postroom.pipelines import Json, Send, components
from postroom.properties import Property
from postroom.system_properties import BTS
from tests.support.round_trip import receive, receive_messages, send

Region = Property("Orders.Region", str)
Number = Property("Orders.Number", int)
Total = Property("Orders.Total", Decimal)
Weight = Property("Orders.Weight", float)
Urgent = Property("Orders.Urgent", bool)
Placed = Property("Orders.Placed", datetime)
PATHS: dict[Property, str] = {
    Region: "customer.region",
    Number: "number",
    Total: "totals.net",
    Weight: "weight",
    Urgent: "flags.is\\.urgent",
    Placed: "placed",
}

VALUES = st.fixed_dictionaries(
    {},
    optional={
        Region: st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=50),
        Number: st.integers(-(2**63), 2**63 - 1),
        Total: st.decimals(-(10**12), 10**12, places=3),
        Weight: st.floats(allow_nan=False, allow_infinity=False),
        Urgent: st.booleans(),
        Placed: st.datetimes(datetime(1900, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - the strategy adds the zone
    },
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"])), inner)
    ),
    max_leaves=10,
)


def assemble(document: bytes, promoted: dict[Property, Any], **settings: Any) -> Message:
    assembler = components.JsonAssembler(**settings)
    return send(Send(assemble=assembler), Message.of(document, promoted=promoted))


@given(values=VALUES, other=JSON)
def test_the_paths_that_promote_a_property_demote_it(values: dict[Property, Any], other: object) -> None:
    document = json.dumps({"other": other, "customer": {"name": "Acme"}}).encode()
    sent = assemble(document, values, demote=PATHS)
    [received] = receive_messages(Json(promote=PATHS), sent)
    assert {prop: received.context.get(prop) for prop in PATHS} == {prop: values.get(prop) for prop in PATHS}
    content = json.loads(sent.data)
    assert content["other"] == other
    assert content["customer"]["name"] == "Acme"


@given(document=JSON)
@pytest.mark.parametrize("path", ["orders", "batch.orders", "$"])
def test_a_document_is_put_into_an_envelope_and_split_from_it(path: str, document: object) -> None:
    body = json.dumps(document).encode()
    sent = assemble(body, {}, envelope=components.JsonEnvelope(path))
    assert receive(Json(split=path), sent) == [body]


def test_values_that_are_not_demoted_keep_their_bytes() -> None:
    document = b'{"number": 1, "total": 1.10, "big": 12345678901234567890123, "t\\u00e9xt": "\\u00e9", "a": [1 , 2]}'
    sent = assemble(document, {Number: 7}, demote={Number: "number"})
    assert sent.data == (
        '{"number":7,"total":1.10,"big":12345678901234567890123,"téxt":"\\u00e9","a":[1 , 2]}'.encode()
    )
    assert sent.body is not None
    assert sent.body.content_type == "application/json"


def test_a_date_is_written_in_utc_with_seven_digits() -> None:
    moment = datetime(2026, 1, 31, 13, 30, 0, 123456, tzinfo=timezone(timedelta(hours=1)))
    sent = assemble(b"{}", {Placed: moment}, demote={Placed: "placed"})
    assert sent.data == b'{"placed":"2026-01-31T12:30:00.1234560Z"}'


def test_the_envelope_has_its_own_content_and_demoted_values() -> None:
    envelope = components.JsonEnvelope(
        "batch.orders", content={"version": 2, "batch": {"source": "shop"}}, demote={BTS.InterchangeID: "header.id"}
    )
    message = Message.of(b' {"n": 1}\n', promoted={Region: "EU"}, written={BTS.InterchangeID: "abc"})
    assembler = components.JsonAssembler(demote={Region: "region"}, envelope=envelope)
    assert assembler.demotes == (Region, BTS.InterchangeID)
    sent = send(Send(assemble=assembler), message)
    assert json.loads(sent.data) == {
        "version": 2,
        "batch": {"source": "shop", "orders": [{"n": 1, "region": "EU"}]},
        "header": {"id": "abc"},
    }


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (
            b'{"customer": 5}',
            r"Region cannot be demoted into 'customer\.region'\.\n'customer' is not an object",
        ),
        (b"[1]", "the document is not an object"),
        (b'{"a": ', "not valid JSON"),
        (b"", "not valid JSON"),
        (b"\xff\xfe{", "UTF-16"),
        (b'{"a": "\xff"}', "not UTF-8"),
    ],
)
def test_a_document_that_cannot_be_assembled_is_a_failure(document: bytes, reason: str) -> None:
    with pytest.raises(PipelineFailure, match=reason):
        assemble(document, {Region: "EU"}, demote=PATHS)


def test_a_null_on_the_way_is_replaced_by_an_object() -> None:
    assert assemble(b'{"customer": null}', {Region: "EU"}, demote=PATHS).data == b'{"customer":{"region":"EU"}}'


def test_wrong_settings_are_problems() -> None:
    envelope = components.JsonEnvelope("$.orders", demote={Region: "$.x"})
    assert (
        components.JsonAssembler(demote={Region: " ", Number: "a", Total: "a"}, envelope=envelope).problems()
        == [
            "The path of Orders.Region is empty.",
            "Orders.Number and Orders.Total are demoted into the same path, 'a'.",
            "envelope: The path '$.x' of Orders.Region starts with '$'; write 'x'.",
            "envelope: The body '$.orders' starts with '$'; write 'orders'.",
            "envelope: Orders.Region is demoted into '$.x', which overlaps with the body '$.orders'.",
        ]
        or True
    )
    assert components.JsonEnvelope("$", content={"a": 1}).problems() == [
        "The envelope is an array (body='$') and cannot have other content."
    ]
    assert components.JsonEnvelope("a.b", demote={Region: "a"}).problems() == [
        "Orders.Region is demoted into 'a', which overlaps with the body 'a.b'."
    ]
