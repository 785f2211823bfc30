from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from lxml import etree

from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE
from postroom.pipelines import Xml
from postroom.properties import Property
from tests.unit.pipelines.conftest import Receive

Region = Property("Orders.Region", str)
Priority = Property("Orders.Priority", int)
Total = Property("Orders.Total", Decimal)
Weight = Property("Orders.Weight", float)
Paid = Property("Orders.Paid", bool)
Due = Property("Orders.Due", datetime)


def promote_one(receive: Receive, prop: Property, inner: str, path: str = "/order/value") -> Any:
    return receive(Xml(promote={prop: path}), f"<order>{inner}</order>".encode()).rows[0][prop.key]


@pytest.mark.parametrize(
    ("document", "message_type"),
    [
        (b'<Message xmlns="http://a/b"/>', "http://a/b#Message"),
        (b'<m:Message xmlns:m="http://a/b"/>', "http://a/b#Message"),
        (b"<Message/>", "Message"),
        (b'<?xml version="1.0"?><!-- first --><?pi?><Message>\r\n</Message>\n', "Message"),
        (b"\xef\xbb\xbf<Message/>", "Message"),
        ('<?xml version="1.0" encoding="utf-16"?><Größe/>'.encode("utf-16"), "Größe"),
        ('<?xml version="1.0" encoding="iso-8859-1"?><Größe/>'.encode("latin-1"), "Größe"),
    ],
)
def test_the_message_type_is_namespace_and_root_and_the_body_is_untouched(
    receive: Receive, document: bytes, message_type: str
) -> None:
    """TYP-01."""
    assert receive(Xml(), document).rows == [
        {"number": 1, "body": document, "offset": None, "length": None, "message_type": message_type}
    ]


@pytest.mark.parametrize(
    ("prop", "inner", "value"),
    [
        (Region, "<value>EU</value>", "EU"),
        (Region, "<value> EU </value>", " EU "),
        (Region, "<value>E<!-- not this -->U</value>", "EU"),
        (Region, "<value><![CDATA[<&>]]>&amp;&#233;</value>", "<&>&é"),
        (Region, "<value/>", ""),
        (Region, "<value></value>", ""),
        (Priority, "<value> 7\n</value>", 7),
        (Total, "<value>10.10</value>", Decimal("10.10")),
        (Weight, "<value>1.25e2</value>", 125.0),
        (Paid, "<value>1</value>", True),
        (Paid, "<value>false</value>", False),
        (Due, "<value>2026-01-31T12:00:00+02:00</value>", datetime(2026, 1, 31, 10, tzinfo=UTC)),
        # There is nothing to promote.
        (Region, "", None),
        (Priority, "<value/>", None),
        (Total, "<value> \n </value>", None),
        (Region, '<value xmlns:x="http://www.w3.org/2001/XMLSchema-instance" x:nil="true"/>', None),
    ],
)
def test_values_are_promoted_by_type(receive: Receive, prop: Property, inner: str, value: object) -> None:
    promoted = promote_one(receive, prop, inner)
    assert promoted == value
    assert type(promoted) is type(value)


def test_attributes_texts_predicates_and_namespaces_are_selected(receive: Receive) -> None:
    document = (
        b'<o:order xmlns:o="urn:orders" region="EU"><line n="1" kind="a"/><line n="2" kind="b">7</line>'
        b'<total xmlns="urn:sums">10.10</total></o:order>'
    )
    pipeline = Xml(
        promote={Region: "/x:order/@region", Priority: "/x:order/line[@kind='b']/text()", Total: "//s:total"},
        namespaces={"x": "urn:orders", "s": "urn:sums"},
    )
    (row,) = receive(pipeline, document).rows
    assert (row[Region.key], row[Priority.key], row[Total.key]) == ("EU", 7, Decimal("10.10"))


@pytest.mark.parametrize(
    ("prop", "inner", "path", "reason"),
    [
        (Region, "<value>EU</value><value>US</value>", "/order/value", "It selects 2 nodes"),
        (Region, "<value>E<!-- a -->U</value>", "/order/value/text()", "It selects 2 nodes"),
        (Region, "<value><part>EU</part></value>", "/order/value", "has child elements"),
        (Region, "<!-- a -->", "/order/comment()", "neither an element, nor an attribute, nor a text"),
        (Region, f"<value>{'x' * 257}</value>", "/order/value", "at most 256 characters"),
        (Priority, "<value>1.5</value>", "/order/value", "'1.5' is not a whole number"),
        (Total, "<value>1e400</value>", "/order/value", "more than 38 digits"),
        (Paid, "<value>yes</value>", "/order/value", "'yes' is not true or false"),
        (Due, "<value>tomorrow</value>", "/order/value", "'tomorrow' is not a date and time"),
        (Region, "<value/>", "/order/value[unknown()]", "The XPath failed"),
    ],
)
def test_a_value_that_cannot_be_promoted_fails(
    receive: Receive, prop: Property, inner: str, path: str, reason: str
) -> None:
    with pytest.raises(PipelineFailure) as raised:
        promote_one(receive, prop, inner, path)
    assert raised.value.what == f"Orders.{prop.name} cannot be promoted from {path!r}."
    assert reason in raised.value.why
    assert raised.value.hint


@pytest.mark.parametrize(
    ("document", "what", "why"),
    [
        (b"", "The interchange is empty.", ""),
        (b" ", "not well-formed XML at line 1", "'<' not found"),
        (b"<order>\n<region>", "not well-formed XML at line 2", "Premature end"),
        (b"<order/><order/>", "not well-formed XML at line 1", "Extra content"),
        (b"<order>&nbsp;</order>", "not well-formed XML at line 1", "nbsp"),
        (b"{}", "not well-formed XML at line 1", "'<' not found"),
        (b"<order>\xe9</order>", "not well-formed XML at line 1, column", "encoding"),
        (b"<order>\x00</order>", "not well-formed XML at line 1", "Char 0x0"),
        (b'<?xml version="1.0" encoding="nonsense"?><a/>', "not well-formed XML at line 1", "encoding"),
        (b"<a xmlns='%s'/>" % (b"u:" + b"x" * 256), "The message type cannot be promoted.", "256 characters"),
    ],
)
def test_a_malformed_document_fails_with_the_position(receive: Receive, document: bytes, what: str, why: str) -> None:
    with pytest.raises(PipelineFailure) as raised:
        receive(Xml(), document)
    assert what in raised.value.what
    assert why in raised.value.why


def test_a_large_document_is_passed_by_reference(receive: Receive) -> None:
    document = b"<order><region>EU</region><pad>%s</pad></order>" % (b"x" * FRAGMENT_SIZE)
    (row,) = receive(Xml(promote={Region: "/order/region"}), document).rows
    assert (row["body"], row["offset"], row["length"], row[Region.key]) == (None, 0, len(document), "EU")


ENVELOPE = Xml(
    promote={Region: "/o:order/o:region"},
    namespaces={"e": "urn:envelope", "o": "urn:orders"},
    split="/e:orders/o:order",
)


def test_an_envelope_is_split_into_complete_documents(receive: Receive) -> None:
    document = b"""<?xml version="1.0" encoding="iso-8859-1"?>
        <e:orders xmlns:e="urn:envelope" xmlns="urn:orders" xmlns:q="urn:q">
          <e:header/> between
          <order kind="q:big"><region>EU</region></order>tail
          <o:order xmlns:o="urn:orders"><o:region>\xe9</o:region></o:order>
          <order/>
        </e:orders>"""
    received = receive(ENVELOPE, document)
    assert received.numbers == [1, 2, 3]
    assert received.column("message_type") == ["urn:orders#order"] * 3
    assert received.column(Region.key) == ["EU", "é", None]
    first = etree.fromstring(received.bodies[0])
    assert first.nsmap == {None: "urn:orders", "e": "urn:envelope", "q": "urn:q"}
    assert (first.get("kind"), first.tail) == ("q:big", None)
    assert "é".encode() in received.bodies[1]


@pytest.mark.parametrize(
    ("content", "body"),
    [
        # Copied byte for byte.
        (b"<e><order n = '1' ><r>&#233;\r\n</r ></order\n></e>", b"<order n = '1' ><r>&#233;\r\n</r ></order\n>"),
        (b"<e xmlns:q='urn:q'><order xmlns:q='urn:r'></order></e>", b"<order xmlns:q='urn:r'></order>"),
        # Serialized again: it needs a namespace of the envelope, or its position is not certain.
        (b"<e xmlns:q='urn:q'><order q:a='1'></order></e>", b'<order xmlns:q="urn:q" q:a="1"/>'),
        (b"<e xmlns:q='urn:q'><order a=' xmlns:q='></order></e>", b'<order xmlns:q="urn:q" a=" xmlns:q="/>'),
        (b"<e xmlns:q='urn:q'><order a='> xmlns:q='></order></e>", b'<order xmlns:q="urn:q" a="&gt; xmlns:q="/>'),
        (b"<e><!-- <order> --><order ></order></e>", b"<order/>"),
        (b"<e><order><![CDATA[</order>]]></order></e>", b"<order>&lt;/order&gt;</order>"),
        (b"<e><order><order ></order></order></e>", b"<order><order/></order>"),
        (b"<e><x><order ></order></x><order/></e>", b"<order/>"),
        (b"<?xml version='1.0' encoding='latin1'?><e><order >\xe9</order></e>", "<order>é</order>".encode()),
    ],
)
def test_a_document_that_needs_no_namespaces_of_its_envelope_keeps_its_bytes(
    receive: Receive, content: bytes, body: bytes
) -> None:
    assert receive(Xml(split="/e/order"), content).bodies == [body]


def test_documents_come_in_batches(receive: Receive) -> None:
    pipeline = Xml(promote={Region: "/o/r"}, split="/os/o")
    content = b"<os>%s</os>" % b"".join(b"<o><r>%d</r></o>" % number for number in range(25))
    by_rows = receive(pipeline, content, batch_rows=10)
    assert by_rows.batch_sizes == [10, 10, 5]
    assert by_rows.numbers == list(range(1, 26))
    assert by_rows.column(Region.key) == [str(number) for number in range(25)]
    assert max(receive(pipeline, content, batch_bytes=50).batch_sizes) == 4


@pytest.mark.parametrize(
    ("document", "split"),
    [
        (b"<orders/>", "/orders/order"),
        (b"<orders date='2026-01-31'/>", "/orders/order"),
        (b"<orders>\n <!-- none today -->\n<?pi?> </orders>", "/orders/order"),
        (b"<orders/>", " / child::orders/order"),
        (b"<orders/>", "/orders//order"),
        (b"<orders/>", "/orders/order[@kind='a']|/parcels/parcel"),
        (b"<orders xmlns='urn:e'/>", "/e:orders/order"),
        (b"<x:orders xmlns:x='urn:e'/>", "/e:orders/body/order"),
    ],
)
def test_an_empty_envelope_is_consumed(receive: Receive, document: bytes, split: str) -> None:
    assert receive(Xml(split=split, namespaces={"e": "urn:e"}), document).rows == []


@pytest.mark.parametrize(
    ("document", "split"),
    [
        # A document instead of an envelope, or another document.
        (b'<order xmlns="urn:e" customer="ACME" amount="150"/>', "/e:orders/e:order"),
        (b"<error>the service is down until 6 o'clock</error>", "/e:orders/e:order"),
        (b"<other/>", "/orders/order"),
        # The same name in another namespace.
        (b"<orders/>", "/e:orders/e:order"),
        (b"<orders xmlns='urn:e'/>", "/orders/order"),
        # The same root, but with text.
        (b"<orders>the service is down</orders>", "/orders/order"),
        (b"<orders><!-- sorry -->the service is down</orders>", "/orders/order"),
        (b"<orders><![CDATA[down]]></orders>", "/orders/order"),
        # With a path that does not name the root, an empty envelope cannot be recognised.
        (b"<error/>", "//order"),
        (b"<error/>", "/*/order"),
        (b"<e:error xmlns:e='urn:e'/>", "/e:*/e:order"),
        (b"<error/>", "/orders//order"),
        (b"<error/>", "order"),
        (b"<orders/>", "/orders[@kind='a']/order"),
    ],
)
def test_an_envelope_that_is_not_certainly_empty_fails(receive: Receive, document: bytes, split: str) -> None:
    with pytest.raises(PipelineFailure) as raised:
        receive(Xml(split=split, namespaces={"e": "urn:e"}), document)
    assert raised.value.what == f"{split!r} selects nothing in this envelope."
    assert "An envelope is empty only if" in raised.value.why


@pytest.mark.parametrize(
    ("document", "split", "what"),
    [
        (b"<orders><ordre/></orders>", "/orders/order", "'/orders/order' selects nothing in this envelope."),
        (b"<parcels><parcel/></parcels>", "/orders/order", "'/orders/order' selects nothing in this envelope."),
        (b"<orders><order id='1'/></orders>", "/orders/order/@id", "cannot be split"),
        (b"<orders><order/></orders>", "/orders/order[unknown()]", "cannot be split"),
    ],
)
def test_an_envelope_of_another_form_fails(receive: Receive, document: bytes, split: str, what: str) -> None:
    with pytest.raises(PipelineFailure) as raised:
        receive(Xml(split=split), document)
    assert what in raised.value.what


def test_one_bad_document_fails_the_envelope(receive: Receive) -> None:
    pipeline = Xml(promote={Priority: "/order/priority"}, split="/orders/order")
    content = b"<orders><order/><order><priority>high</priority></order><order/></orders>"
    with pytest.raises(PipelineFailure) as raised:
        receive(pipeline, content)
    assert raised.value.what == "Document 2: Orders.Priority cannot be promoted from '/order/priority'."
