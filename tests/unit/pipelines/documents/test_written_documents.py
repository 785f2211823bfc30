"""Documents that a disassembler has to write may be as large as any other (LRG-02)."""

from __future__ import annotations

import pytest
from lxml import etree

from postroom.errors import PipelineFailure
from postroom.message import FRAGMENT_SIZE, Bytes, Message
from postroom.pipelines import Csv, Delimited, FlatFile, Receive, ReceivePipeline, Xml, XmlReceive
from postroom.pipelines.documents.disassembled_batch import WrittenDocuments
from postroom.schemas import Schema, Schemas
from postroom.temporary_bodies import slice_body

PAD = "x" * FRAGMENT_SIZE
FLAT = FlatFile(
    message_type="urn:o#Order",
    record=Delimited(["id", "text"], delimiter=";", tag="O"),
    lines={"line": Delimited(["sku"], delimiter=";", tag="L")},
)
BY_SCHEMA = XmlReceive(
    schemas=Schemas(
        schemas=(Schema(message_type="urn:o#e", envelope=True, body="/*"), Schema(message_type="urn:o#order"))
    )
)
ENVELOPE = f'<e xmlns="urn:o"><order>1</order><order>{PAD}</order><order>3</order><order>{PAD}4</order></e>'
IN_LATIN_1 = f"<?xml version='1.0' encoding='iso-8859-1'?><e xmlns='urn:o'><order>{PAD}é</order></e>".encode("latin-1")
ORDER = '<order xmlns="urn:o">{}</order>'
RECORD = '<ns0:Order xmlns:ns0="urn:o"><id>{}</id><text>{}</text>{}</ns0:Order>'
CASES: list[tuple[ReceivePipeline, bytes, list[str]]] = [
    (Xml(split="/*/*"), ENVELOPE.encode(), [ORDER.format(text) for text in ("1", PAD, "3", f"{PAD}4")]),
    (BY_SCHEMA, ENVELOPE.encode(), [ORDER.format(text) for text in ("1", PAD, "3", f"{PAD}4")]),
    (Xml(split="/*/*"), IN_LATIN_1, [ORDER.format(f"{PAD}é")]),
    (Csv(), f"id,text\n1,{PAD}\n2,\n".encode(), [f"id,text\n1,{PAD}\n", "id,text\n2,\n"]),
    (
        FLAT,
        ("O;1;a\n" + "L;12345678\n" * 6_000 + f"O;2;b\nO;3;{PAD}\n").encode(),
        [
            RECORD.format(1, "a", "<line><sku>12345678</sku></line>" * 6_000),
            RECORD.format(2, "b", ""),
            RECORD.format(3, PAD, ""),
        ],
    ),
]
IDS = ["xml", "by schema", "encoding", "csv", "flat file"]


def documents(pipeline: ReceivePipeline, content: bytes, **size: int) -> list[str]:
    """Return the bodies. Each is read with the offsets of its own batch and of the last batch, from which a standard
    interchange is published."""
    assert pipeline.problems() == []
    batches = list(pipeline.disassemble(Bytes(content), **size))  # type: ignore[arg-type]
    found: list[list[bytes]] = []
    for last in (False, True):
        bodies = []
        for batch in batches:
            decoded = (batches[-1] if last else batch).decoded
            for row in batch.messages.to_pylist():
                is_large = row["length"] is not None
                assert is_large == (row["body"] is None)
                source = Bytes(content) if decoded is None else decoded.body
                bodies.append(
                    b"".join(slice_body(source, row["offset"], row["length"]).chunks()) if is_large else row["body"]
                )
        found.append(bodies)
    assert found[0] == found[1]
    return [body.decode() for body in found[0]]


@pytest.mark.parametrize(("pipeline", "content", "expected"), CASES, ids=IDS)
@pytest.mark.parametrize("rows", [1, 10_000])
def test_a_large_written_document_is_complete(
    pipeline: ReceivePipeline, content: bytes, expected: list[str], rows: int
) -> None:
    assert any(len(one) > FRAGMENT_SIZE for one in expected)
    assert documents(pipeline, content, batch_rows=rows) == expected


@pytest.mark.parametrize(("pipeline", "content", "expected"), CASES, ids=IDS)
def test_components_read_a_large_document_and_it_stays_complete(
    pipeline: ReceivePipeline, content: bytes, expected: list[str]
) -> None:
    seen: list[bytes] = []

    def look(message: Message) -> None:
        seen.append(message.data)

    assert documents(Receive(disassemble=[pipeline], validate=[look]), content) == expected
    assert [one.decode() for one in seen] == expected


def test_a_document_with_a_certain_position_is_not_copied() -> None:
    order = b"<order pad='%s'></order >" % PAD.encode()
    envelope = b"<orders>%s</orders>" % order
    [batch] = Xml(split="/orders/order").disassemble(Bytes(envelope))
    assert batch.decoded is None
    [row] = batch.messages.to_pylist()
    assert envelope[row["offset"] : row["offset"] + row["length"]] == order


def test_a_written_document_has_a_maximum_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("postroom.pipelines.documents.disassembled_batch.MAX_DOCUMENT_SIZE", FRAGMENT_SIZE + 30)
    with pytest.raises(PipelineFailure, match="The document has 102,431 bytes, which is more than a pipeline can read"):
        WrittenDocuments().store(b"x" * (FRAGMENT_SIZE + 31))
    [batch] = Csv().disassemble(Bytes(f"id,text\n1,{PAD}{PAD}\n2,{PAD}\n".encode()))
    assert batch.messages["number"].to_pylist() == [2]
    assert [bad.number for bad in batch.failures] == [1]


def test_a_serialized_document_equals_its_element_in_the_envelope() -> None:
    envelope = f'<a:e xmlns:a="urn:a" xmlns="urn:o"><order a:k="&lt;&#10;"><![CDATA[<&>]]>{PAD}<!-- c --></order></a:e>'
    [document] = documents(Xml(split="/*/*"), envelope.encode())
    alone = etree.fromstring(document)
    inside = etree.fromstring(envelope)[0]
    assert etree.tostring(alone, method="c14n") == etree.tostring(inside, method="c14n", with_tail=False)
