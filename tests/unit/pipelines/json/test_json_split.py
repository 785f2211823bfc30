"""An array of JSON documents, at the root or at a path, is split into messages (RCV-10, RCV-12, RCV-13)."""

from __future__ import annotations

import itertools
from decimal import Decimal

import pytest

from postroom import maps
from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE, Bytes
from postroom.pipelines import Json, JsonLines, Receive, Xml, load_pipeline
from postroom.pipelines.documents.disassembled_batch import MAX_DOCUMENT_SIZE
from postroom.properties import Property
from postroom.temporary_bodies import slice_body
from tests.unit.pipelines.conftest import Receive as Run

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
ORDERS = Json(promote={Region: "region", Total: "sums.net"}, message_type="order", split="orders")


def test_each_element_is_a_message_in_its_own_bytes(receive: Run) -> None:
    first = b'{"region" : "EU",\r\n "sums": {"net": 10.10}}'
    second = b'{"region":"\xc3\x9c\\u00e9","region":"US", "more": ["]", "},{"]}'
    envelope = b' {"sender": {"orders": 1}, "orders" : [ %s ,%s\n], "count": 2}\n' % (first, second)
    received = receive(ORDERS, envelope)
    assert received.bodies == [first, second]
    assert received.numbers == [1, 2]
    assert received.column(Region.key) == ["EU", "US"]
    assert received.column(Total.key) == [Decimal("10.10"), None]
    assert received.column("message_type") == ["order", "order"]


@pytest.mark.parametrize(
    ("split", "envelope"),
    [
        ("$", b"[1, 2]"),
        ("$", b"\xef\xbb\xbf\n[1, 2] "),
        ("batch.orders", b'{"orders": [], "batch": {"orders": [1, 2]}}'),
        (r"a\.b", b'{"a.b": [1, 2]}'),
        ("orders", b'{"ord\\u0065rs": [1, 2]}'),
        ("orders", b'{"orders": [3], "orders": [1, 2]}'),
    ],
)
def test_the_array_is_the_interchange_or_is_at_a_path(receive: Run, split: str, envelope: bytes) -> None:
    assert receive(Json(split=split), envelope).bodies == [b"1", b"2"]


@pytest.mark.parametrize(("split", "envelope"), [("$", b" [ ] "), ("a.b", b'{"a": {"b": []}, "c": 1}')])
def test_an_empty_array_is_an_empty_envelope(receive: Run, split: str, envelope: bytes) -> None:
    assert receive(Json(split=split), envelope).rows == []


@pytest.mark.parametrize(
    ("split", "envelope", "what", "why"),
    [
        ("orders", b"[1]", "cannot be split at 'orders'", "It is an array, not an object."),
        ("orders", b'{"order": []}', "cannot be split at 'orders'", "There is no 'orders' in it."),
        ("a.orders", b'{"a": {}}', "cannot be split at 'a.orders'", "There is no 'orders' in it."),
        ("a.orders", b'{"a": "x"}', "cannot be split at 'a.orders'", "'a' is a string, not an object."),
        ("orders", b'{"orders": {"a": [1]}}', "cannot be split at 'orders'", "'orders' is an object, not an array."),
        ("orders", b'{"orders": null}', "cannot be split at 'orders'", "'orders' is null, not an array."),
        ("orders", b'{"orders": -1}', "cannot be split at 'orders'", "'orders' is a number, not an array."),
        ("$", b'{"error": "the service is down"}', "cannot be split at '$'", "It is an object, not an array."),
        ("$", b"[1, 2", "it ends early", ""),
        ("$", b"[1, 2] [3]", "not valid JSON", "trailing characters"),
        ("orders", b'{"orders": [1,]}', "not valid JSON", "trailing comma"),
        ("orders", b'{"by": "\xff", "orders": [1]}', "not UTF-8 at byte 9", "0xff"),
        ("orders", b'{"orders": [1], "by": "\xff"}', "not UTF-8 at byte 24", "0xff"),
        ("$", b"[" * 100_000, "nested too deeply", ""),
        ("$", b" ", "The interchange is empty", ""),
        ("$", b"\xff\xfe[\x001\x00]\x00", "in UTF-16", ""),
    ],
)
def test_an_interchange_without_an_array_fails_as_a_whole(
    receive: Run, split: str, envelope: bytes, what: str, why: str
) -> None:
    with pytest.raises(PipelineFailure) as caught:
        receive(Json(split=split, recoverable=True), envelope)
    assert what in caught.value.what
    assert why in caught.value.why


ONE_BAD = b'[{"region": "EU"}, {"region": 5}, {"region": "\xff"}, 7, {"region": "US"}]'


def test_a_bad_document_fails_the_interchange(receive: Run) -> None:
    """RCV-12."""
    with pytest.raises(PipelineFailure, match=r"Document 2: .*region"):
        receive(Json(promote={Region: "region"}, split="$"), ONE_BAD)


def test_a_recoverable_pipeline_suspends_bad_documents_alone(receive: Run) -> None:
    """RCV-13, MSG-07: they are numbered like the others."""
    received = receive(Json(promote={Region: "region"}, split="$", recoverable=True), ONE_BAD)
    assert received.numbers == [1, 5]
    assert [(bad.number, bad.body) for bad in received.failures] == [
        (2, b'{"region": 5}'),
        (3, b'{"region": "\xff"}'),
        (4, b"7"),
    ]
    assert all(reason.startswith(f"Document {number}:") for number, reason in enumerate(received.reasons, 2))


def test_batches_end_at_their_rows_or_bytes(receive: Run) -> None:
    envelope = b"[" + b",".join(b'{"region": "%d"}' % number for number in range(10)) + b"]"
    pipeline = Json(promote={Region: "region"}, split="$")
    whole = receive(pipeline, envelope)
    for size in ({"batch_rows": 4}, {"batch_bytes": 50}):
        parts = receive(pipeline, envelope, **size)
        assert len(parts.batch_sizes) == 3
        assert parts.rows == whole.rows


def test_large_documents_are_passed_by_reference(receive: Run) -> None:
    """LRG-02: a body above the fragment size is passed by its offset."""
    large = [b'{"region": "EU", "text": "%s"}' % (b"x" * (FRAGMENT_SIZE + n % 2)) for n in range(3)]
    envelope = b'\xef\xbb\xbf{"first": %s, "orders": [%s, {"region": "US"}, %s , %s]}' % (large[0], *large)
    rows = receive(ORDERS, envelope).rows
    assert [row["body"] for row in rows] == [None, b'{"region": "US"}', None, None]
    found = [
        b"".join(slice_body(Bytes(envelope), row["offset"], row["length"]).chunks()) for row in rows if row["length"]
    ]
    assert found == large


def test_an_array_with_too_many_elements_is_read_one_by_one(receive: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [b'{"a": [1, {"b": "\xc3\xa9]\\"},"}]}', b"-1.5e3", b'"x"', b"null", b"true", b"1" * 5000, b"[[]]"]
    envelope = b"[ " + b" ,\n".join(documents) + b" ]"
    monkeypatch.setattr("postroom.pipelines.json.split.MAX_COMMAS_AT_ONCE", 1)
    assert receive(Json(split="$"), envelope).bodies == documents


def test_an_interchange_has_a_limit(receive: Run) -> None:
    class Large:
        size = MAX_DOCUMENT_SIZE + 1

        def chunks(self) -> itertools.chain[bytes]:
            raise AssertionError("it was read")

    with pytest.raises(PipelineFailure, match="which is more than a pipeline can read"):
        receive(Json(split="$"), Large())


def test_the_first_disassembler_that_accepts_the_content_runs(receive: Run) -> None:
    """RCV-03: an array starts with a bracket, an envelope around one with a brace."""
    several = Receive(
        disassemble=[Xml(), Json(split="$", message_type="list"), Json(split="orders"), JsonLines()], recoverable=True
    )
    assert receive(several, b"<a/>").column("message_type") == ["a"]
    assert receive(several, b"[1, 2]").column("message_type") == ["list", "list"]
    assert receive(several, b'{"orders": [1, 2, 3]}').column("message_type") == [None] * 3
    assert receive(several, b'"a line"\n17').bodies == [b'"a line"', b"17"]


@pytest.mark.parametrize(
    ("split", "problem"),
    [("", "cannot be read"), ("a..b", "cannot be read"), ("a[0]b\\", "cannot be read"), ("$.orders", "write 'orders'")],
)
def test_a_path_that_cannot_be_read_is_a_problem(split: str, problem: str) -> None:
    [reported] = Json(split=split).problems()
    assert problem in reported


def test_recoverable_is_for_several_documents() -> None:
    [reported] = Json(recoverable=True).problems()
    assert "split" in reported


def test_a_map_reads_one_document() -> None:
    one = maps.Xslt("a.xsl", source="a", target="b", read=Json(split="$"))
    assert "read: it has a split; a map returns one message." in one.problems()


def test_the_definition_survives_storage() -> None:
    pipeline = Json(promote={Region: "region"}, split="a.b", recoverable=True)
    assert load_pipeline(pipeline.model_dump(mode="json")) == pipeline
    before_split: dict[str, object] = {"kind": "json", "promote": [], "message_type": None}
    assert load_pipeline(before_split) == Json()
