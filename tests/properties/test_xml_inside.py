"""Documents that are promoted and validated inside their envelope have the same result as documents read alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from itertools import repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from hypothesis import example, given
from hypothesis import strategies as st
from lxml import etree

from postroom.errors import PipelineFailure
from postroom.message import Bytes
from postroom.pipelines import Receive, Xml, components
from postroom.pipelines.xml.promotion import XmlPromotion
from postroom.properties import Property
from postroom.schemas.validation import CompiledSchemas

SCHEMA = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:o="urn:o" targetNamespace="urn:o"
  elementFormDefault="qualified">
<xs:complexType name="Kind"><xs:simpleContent><xs:extension base="xs:string">
  <xs:attribute name="k" type="{N}"/></xs:extension></xs:simpleContent></xs:complexType>
<xs:complexType name="Short"><xs:simpleContent><xs:restriction base="o:Kind"><xs:maxLength value="2"/></xs:restriction>
</xs:simpleContent></xs:complexType>
<xs:element name="order"><xs:complexType><xs:sequence>
  <xs:element name="region" type="o:Kind" minOccurs="0" maxOccurs="2" nillable="true"/>
  <xs:element name="total" type="xs:decimal" minOccurs="0"/>
  <xs:element name="name" type="xs:QName" minOccurs="0"/>
</xs:sequence><xs:attribute name="n" type="{N}"/><xs:anyAttribute namespace="##other" processContents="lax"/>
</xs:complexType></xs:element>
</xs:schema>"""
WITHOUT_IDS, WITH_IDS = SCHEMA.replace("{N}", "xs:int"), SCHEMA.replace("{N}", "xs:ID")
Region, Total, Number = Property("X.Region", str), Property("X.Total", Decimal), Property("X.Number", str)


def _pipeline(schema: str, *, region: str = "/o:order/o:region", split: str = "/*/*") -> Receive:
    with TemporaryDirectory() as folder:
        (Path(folder) / "order.xsd").write_text(schema.replace("", ""))
        return Receive(
            disassemble=[
                Xml(
                    promote={Region: region, Total: "/o:order/o:total", Number: "/o:order/@n"},
                    namespaces={"o": "urn:o"},
                    split=split,
                )
            ],
            validate=[components.Xsd("order.xsd", recoverable=True)],
            recoverable=True,
        ).pack(Path(folder))


PIPELINES = [
    _pipeline(WITHOUT_IDS),
    _pipeline(WITH_IDS),
    _pipeline(WITHOUT_IDS, region="//o:region[1]"),
    _pipeline(WITHOUT_IDS, split="/e/o:order"),
    _pipeline(WITH_IDS, split="/o:e/o:order"),
    _pipeline(WITHOUT_IDS, split="//o:order"),
    _pipeline(WITHOUT_IDS, split="/o:e/o:order", region="/o:order/o:order/o:region"),
    _pipeline(WITHOUT_IDS, split="//o:order", region="/o:order/o:region/@k"),
]

_TEXTS = st.sampled_from(
    [
        "EU",
        "",
        " a\n",
        "x" * 300,
        "<![CDATA[<&]]>",
        "a<!-- c -->b",
        "a<?p?>b",
        "&#13;&amp;&lt;é",
        "<region/>",
        "1.50",
        "-0",
    ]
)
_REGIONS = st.builds(
    "<{0}region{1}>{2}</{0}region>".format,
    st.sampled_from(["", "", "p:"]),
    st.sampled_from(
        ["", ' k="a"', ' k="1"', ' xsi:nil="true"', ' xsi:type="p:Short"', ' xsi:type="o:Short"', ' xsi:type="Short"']
    ),
    _TEXTS,
)
_TOTALS = st.builds("<total>{}</total>".format, _TEXTS)
_NAMES = st.builds("<name>{}</name>".format, st.sampled_from(["p:x", "o:x", "x", "q:x"]))
_ORDERS = st.builds(
    '<{0}order{1} n="{2}"{3}>{4}</{0}order>'.format,
    st.sampled_from(["", "", "", "p:"]),
    st.sampled_from(["", ' xmlns="urn:o"', ' xmlns:o="urn:o" xmlns=""', ' xmlns:p="urn:p"', ' xmlns="urn:other"']),
    st.sampled_from(["1", "a", "b"]),
    st.sampled_from(["", ' xml:id="a"', ' xml:lang="de"', ' q:z="&#10;&quot;"']),
    st.builds("\n".join, st.tuples(_REGIONS, _TOTALS | st.just(""), _NAMES | st.just(""))),
)
_PREFIXES = 'xmlns:p="urn:o" xmlns:q="urn:q" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
_DECLARED_OUTSIDE = st.builds(
    f"<e{{0}} {_PREFIXES}>{{1}}</e>".format,
    st.sampled_from(['', ' xmlns="urn:o"', ' xmlns="urn:o" xmlns:o="urn:o"', ' xml:lang="en"']),
    st.lists(_ORDERS, min_size=1, max_size=4).map("\n".join),
)  # fmt: skip
_DECLARED_INSIDE = st.builds(
    "<?xml version='1.0'?>\n<e{0}>{1}</e>".format,
    st.sampled_from(["", "", ' xmlns="urn:o"', ' xmlns:p="urn:p"', " xmlns:o='urn:o'"]),
    st.lists(
        st.builds(
            "<order {0}{1} n='{2}'>{3}</order\n>".format,
            st.just(f'{_PREFIXES} xmlns="urn:o"'),
            st.sampled_from(["", ' xmlns:o="urn:o"', " q:a=' xmlns:o=\"x\"'", ' q:a=">" xmlns:o="urn:o"']),
            st.sampled_from(["1", "a"]),
            st.sampled_from(
                [
                    "<region>é&#13;\r\n&gt;</region>",
                    "<region k='1'/><total>1</total>",
                    "<order><region>in</region></order><region>out</region>",
                    "<order><order><region>in</region></order></order>",
                    "<order/>",
                    "",
                ]
            ),
        )
        | _ORDERS,
        min_size=1,
        max_size=3,
    ).map("\n".join),
)
#: A root and its child have the same id. The root of a document in an envelope is validated apart from its children.
_SAME_ID = '<e xmlns="urn:o"><order n="a"/><order n="a"><region k="a"/></order><order n="a"><region k="b"/></order></e>'


@given(_DECLARED_INSIDE | _DECLARED_OUTSIDE, st.sampled_from(PIPELINES))
@example(_SAME_ID, PIPELINES[1])
def test_a_document_in_an_envelope_is_processed_as_if_it_were_read_alone(envelope: str, pipeline: Receive) -> None:
    try:
        etree.fromstring(envelope)
    except etree.XMLSyntaxError:
        return  # an undeclared prefix
    quick = _receive(pipeline, envelope)
    with _without_shortcuts():
        assert _receive(pipeline, envelope) == quick


def test_a_valid_document_is_parsed_once() -> None:
    content = "<e>" + '<order xmlns="urn:o" n="1"><region>EU</region><total>1</total></order>' * 3 + "</e>"
    with patch("postroom.pipelines.xml.document.read_tree", side_effect=[etree.fromstring(content)]) as read:
        rows, failures = _receive(PIPELINES[0], content)
    assert (len(rows), failures, read.call_count) == (3, [], 1)


@contextmanager
def _without_shortcuts() -> Iterator[None]:
    with (
        patch.object(XmlPromotion, "values_inside", lambda self, envelope, documents: repeat(None, len(documents))),
        patch.object(CompiledSchemas, "is_certainly_valid", lambda self, root: False),
        patch(
            "postroom.pipelines.xml.document.copy_documents", lambda content, split, elements: [None] * len(elements)
        ),
    ):
        yield


def _receive(pipeline: Receive, envelope: str) -> tuple[list[Any], list[Any]]:
    try:
        batches = list(pipeline.disassemble(Bytes(envelope.encode())))
    except PipelineFailure as failure:
        return [], [str(failure)]
    rows = [row | {"body": _to_canonical_xml(row["body"])} for batch in batches for row in batch.messages.to_pylist()]
    failures = [
        (bad.number, _to_canonical_xml(bad.body), str(bad.failure)) for batch in batches for bad in batch.failures
    ]
    return rows, failures


def _to_canonical_xml(body: bytes) -> bytes:
    """Return the canonical form of a document, which does not depend on its notation."""
    return etree.tostring(etree.fromstring(body), method="c14n")
