"""Documents of flat file records are read again with the same values (INS-12)."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom.errors import PipelineFailure
from postroom.message import Bytes
from postroom.pipelines import Delimited, Field, FlatFile
from postroom.pipelines.documents.disassembled_batch import Form
from postroom.pipelines.receive.suspended_document import ResumedPipeline, SuspendedDocument
from postroom.properties import Property

Region = Property("Orders.Region", str)
Number = Property("Orders.Number", int)
Total = Property("Orders.Total", Decimal)
Due = Property("Orders.Due", datetime)
Rush = Property("Orders.Rush", bool)
PROMOTE = {Region: "region", Number: "number", Total: "total", Due: "due", Rush: "rush"}
# The number is a text in the document and an int property.
FIELDS: list[Field | str] = ["region", "number", Field("total", Decimal), Field("due", datetime), Field("rush", bool)]
KEPT = SuspendedDocument(number=1, form=Form.DISASSEMBLED, disassembler=1)

Output = Literal["xml", "json"]


def flat(output: Output) -> FlatFile:
    return FlatFile(
        message_type="urn:orders#Order",
        record=Delimited(FIELDS),
        promote=PROMOTE,
        output=output,
        end=";",
    )


def again(pipeline: FlatFile, document: bytes) -> dict[str, object]:
    [batch] = ResumedPipeline(pipeline, KEPT).disassemble(Bytes(document))
    [row] = batch.messages.to_pylist()
    return dict(row)


@pytest.mark.parametrize("output", ["xml", "json"])
@given(
    region=st.text(st.characters(exclude_categories=["C"], exclude_characters='",;') | st.sampled_from("<&>\t"))
    .filter(lambda text: text.isprintable() or "\t" in text)
    .map(lambda text: text[:200]),
    number=st.integers(-(2**31), 2**31) | st.none(),
    rest=st.sampled_from([",,", "12.50,2026-01-31T12:00:00+02:00,true", "1e3,2026-01-31,0", "-0,,false"]),
)
def test_the_promoted_values_do_not_depend_on_the_way_of_reading(
    output: Output, region: str, number: int | None, rest: str
) -> None:
    pipeline = flat(output)
    record = f'"{region}",{"" if number is None else number},{rest}'.encode()
    [batch] = pipeline.disassemble(Bytes(record))
    assert not batch.failures
    [row] = batch.messages.to_pylist()
    assert again(pipeline, row["body"]) == row


@pytest.mark.parametrize(
    ("output", "document", "what"),
    [
        ("xml", b"<Order/>", "The document is of the type 'Order'"),
        (
            "xml",
            b'<o:Order xmlns:o="urn:orders"><region>EU</region><region/></o:Order>',
            "'region' is not a valid field",
        ),
        ("xml", b'<o:Order xmlns:o="urn:orders"><region><a/></region></o:Order>', "'region' is not a valid field"),
        ("xml", b'<o:Order xmlns:o="urn:orders"><total>x</total></o:Order>', "Orders.Total cannot be promoted"),
        ("xml", b"EU,1,2", "XML"),
        ("json", b'{"region": ["EU"]}', "'region' is not a valid field"),
        ("json", b'["EU"]', "The document is not a JSON object"),
        ("json", b'{"region": "EU"', "it ends early"),
        ("json", b'{"region": "\xff"}', "not UTF-8"),
        ("json", b'{"number": 1.5}', "Orders.Number cannot be promoted"),
    ],
)
def test_a_document_of_another_form_is_rejected(output: Output, document: bytes, what: str) -> None:
    with pytest.raises(PipelineFailure) as caught:
        again(flat(output), document)
    assert what in str(caught.value)


def test_a_corrected_document_may_be_formatted_differently() -> None:
    spaced = b'\xef\xbb\xbf{ "extra": {}, "total": 1.50,\n "rush": true, "region": null }'
    row = again(flat("json"), spaced)
    assert (row[Total.key], row[Rush.key], row[Region.key], row["body"]) == (Decimal("1.5"), True, None, spaced)
    row = again(flat("xml"), b'<?xml version="1.0"?>\n<x:Order xmlns:x="urn:orders">\n <region/><!-- EU --></x:Order>')
    assert (row[Region.key], row["message_type"]) == ("", "urn:orders#Order")
