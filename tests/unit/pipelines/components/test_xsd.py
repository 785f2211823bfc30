"""Validation by XSD: valid and invalid documents, and references to other files."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from lxml import etree

from postroom.errors import PipelineFailure
from postroom.pipelines import Json, JsonLines, PassThrough, Receive, Xml, components, load_pipeline
from postroom.schemas.validation import CompiledSchemas
from tests.unit.pipelines.conftest import Receive as Run

INSTANCE = b"http://www.w3.org/2001/XMLSchema-instance"
ORDER = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" xmlns:o="urn:orders" targetNamespace="urn:orders"
  elementFormDefault="qualified">
<xs:include schemaLocation="../common/types.xsd"/>
<xs:import namespace="urn:people" schemaLocation="people.xsd"/>
<xs:element name="order"><xs:complexType><xs:sequence>
  <xs:element name="total" type="o:Amount"/><xs:element ref="p:person" xmlns:p="urn:people" minOccurs="0"/>
</xs:sequence></xs:complexType></xs:element>
</xs:schema>"""
TYPES = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema">
<xs:simpleType name="Amount">
  <xs:restriction base="xs:decimal"><xs:minInclusive value="0"/></xs:restriction>
</xs:simpleType>
<xs:element name="note" type="xs:string"/>
</xs:schema>"""
PEOPLE = """<?xml version="1.0" encoding="utf-16"?>
<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:people">
<xs:element name="person" type="xs:string"/>
</xs:schema>"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in (("orders/order.xsd", ORDER), ("orders/people.xsd", PEOPLE), ("common/types.xsd", TYPES)):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def packed(folder: Path, validator: components.Validator, **settings: object) -> Receive:
    pipeline = Receive(
        disassemble=settings.pop("disassemble", [Xml(split="/batch/*")]),  # type: ignore[arg-type]
        validate=[validator],
        **settings,  # type: ignore[arg-type]
    )
    assert pipeline.packing_problems(folder) == []
    stored = load_pipeline(pipeline.pack(folder).model_dump(mode="json"))
    assert isinstance(stored, Receive)
    return stored


def order(total: str, more: str = "") -> bytes:
    return f'<order xmlns="urn:orders">\n<total>{total}</total>{more}</order>'.encode()


def batch(*documents: bytes) -> bytes:
    return b"<batch>" + b"".join(documents) + b"</batch>"


def test_a_valid_document_passes_with_shipped_schemas(folder: Path, receive: Run) -> None:
    person = '<p:person xmlns:p="urn:people">Anna</p:person>'
    pipeline = packed(folder, components.Xsd("orders/order.xsd"))
    assert sorted(pipeline.files.contents) == ["common/types.xsd", "orders/order.xsd", "orders/people.xsd"]
    documents = batch(order("1"), order("2.5", person), b'<note xmlns="urn:orders">x</note>')
    assert receive(pipeline, documents).numbers == [1, 2, 3]


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (order("-1"), "line 2: Element '{urn:orders}total': "),
        (b'<order xmlns="urn:orders" a="" b="" c="" d=""><total>1</total></order>', "and 1 more"),
        (b"<order/>", "There is no schema for the message type 'order'."),
    ],
)
def test_an_invalid_document_fails_its_interchange(folder: Path, receive: Run, document: bytes, reason: str) -> None:
    with pytest.raises(PipelineFailure) as failed:
        receive(packed(folder, components.Xsd("orders/order.xsd")), batch(order("1"), document))
    assert failed.value.what.startswith("Document 2: Xsd: ")
    assert reason in str(failed.value)


def test_with_a_message_type_it_can_be_combined_with_a_json_schema(folder: Path, receive: Run) -> None:
    (folder / "order.json").write_text('{"required": ["total"]}')
    pipeline = Receive(
        disassemble=[Xml(), Json(message_type="order")],
        validate=[
            components.Xsd("orders/order.xsd", message_type="urn:orders#order"),
            components.JsonSchema("order.json", message_type="order"),
        ],
    ).pack(folder)
    assert receive(pipeline, b'{"total": 1}').numbers == [1]
    assert receive(pipeline, b'<order xmlns="urn:orders"><total>1</total></order>').numbers == [1]
    assert receive(pipeline, b"<another/>").numbers == [1]
    with pytest.raises(PipelineFailure, match="JsonSchema"):
        receive(pipeline, b"{}")
    with pytest.raises(PipelineFailure, match="Xsd"):
        receive(pipeline, b'<order xmlns="urn:orders"><total>-1</total></order>')
    assert len(components.Xsd("a.xsd", message_type="").problems()) == 1


def test_a_recoverable_validator_suspends_an_invalid_document_alone(folder: Path, receive: Run) -> None:
    """RCV-14, RCV-16."""
    alone = packed(folder, components.Xsd("orders/order.xsd", recoverable=True), recoverable=True)
    received = receive(alone, batch(order("1"), order("-1"), b"<unknown/>", order("3")))
    assert received.numbers == [1, 4]
    assert [bad.number for bad in received.failures] == [2, 3]
    with pytest.raises(PipelineFailure, match="Document 2"):
        receive(packed(folder, components.Xsd("orders/order.xsd"), recoverable=True), batch(order("1"), order("-1")))
    # XML that is not well-formed always fails its interchange.
    with pytest.raises(PipelineFailure, match="not well-formed"):
        receive(alone, batch(order("1"), b"<order>"))


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        (b"{}", "not well-formed"),
        (b'<!DOCTYPE order [<!ENTITY e SYSTEM "file:///etc/passwd">]><order xmlns="urn:orders">&e;</order>', "DOCTYPE"),
        (b"<order>" * 300, "nested too deeply"),
        (
            b'<order xmlns="urn:orders" xmlns:i="%b" i:schemaLocation="urn:orders file:///etc/passwd"/>' % INSTANCE,
            "Missing child element",
        ),
    ],
)
def test_an_unparsed_document_is_parsed_safely(folder: Path, receive: Run, document: bytes, reason: str) -> None:
    with pytest.raises(PipelineFailure, match=reason):
        receive(packed(folder, components.Xsd("orders/order.xsd"), disassemble=[PassThrough()]), document)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (
            ("../common/types.xsd", "../common/none.xsd"),
            "orders/order.xsd:3: it includes '../common/none.xsd', and there is no such file.",
        ),
        (("people.xsd", ".\\none.xsd"), "orders/order.xsd:4: it imports '.\\none.xsd', and there is no such file."),
        (
            ("../common/types.xsd", "../../secret.xsd"),
            "it includes '../../secret.xsd', which is outside the application's folder.",
        ),
        (
            ("../common/types.xsd", "http://example.com/types.xsd"),
            "it includes 'http://example.com/types.xsd', which is outside the application's folder.",
        ),
        (("people.xsd", "file:///etc/passwd"), "it imports 'file:///etc/passwd', which is outside the application's"),
        (("o:Amount", "o:Nothing"), "order.xsd:6: element decl. '{urn:orders}total', attribute 'type'"),
        (("</xs:schema>", ""), "it is not well-formed XML"),
        (("<xs:schema", '<!DOCTYPE x [<!ENTITY e "x">]><xs:schema'), "DOCTYPE"),
    ],
)
def test_the_problems_of_a_schema_are_reported_before_applying(
    folder: Path, change: tuple[str, str], problem: str
) -> None:
    path = folder / "orders" / "order.xsd"
    path.write_text(path.read_text().replace(*change))
    pipeline = Receive(disassemble=[JsonLines()], validate=[components.Xsd("orders/order.xsd")])
    assert problem in "\n".join(pipeline.packing_problems(folder))


def test_a_missing_file_of_an_imported_file_is_named_where_it_is_referred_to(folder: Path) -> None:
    people = folder / "orders" / "people.xsd"
    people.write_text(PEOPLE.replace("<xs:element", '<xs:include schemaLocation="names.xsd"/>\n<xs:element'))
    assert Receive(validate=[components.Xsd("orders/order.xsd")]).packing_problems(folder) == [
        "validate, component 1: orders/people.xsd:3: it includes 'names.xsd', and there is no such file."
    ]


@pytest.mark.parametrize("name", ["orders/order.xsd", "./orders/order.xsd", ".\\orders\\order.xsd"])
def test_locations_in_the_form_of_biztalk_editor_are_followed(folder: Path, receive: Run, name: str) -> None:
    (folder / "common" / "types.xsd").rename(folder / "common" / "Common Types.xsd")
    text = ORDER.replace("../common/types.xsd", "..\\common\\Common Types.xsd").replace("people.xsd", ".\\people.xsd")
    # BizTalk Editor saves in UTF-16.
    (folder / "orders" / "order.xsd").write_bytes(f'<?xml version="1.0" encoding="utf-16"?>{text}'.encode("utf-16"))
    pipeline = packed(folder, components.Xsd(name))
    assert sorted(pipeline.files.contents) == ["common/Common Types.xsd", "orders/order.xsd", "orders/people.xsd"]
    person = '<p:person xmlns:p="urn:people">Anna</p:person>'
    assert receive(pipeline, batch(order("1"), order("2", person))).numbers == [1, 2]
    with pytest.raises(PipelineFailure, match="total"):
        receive(pipeline, batch(order("-1")))


def test_a_root_that_two_files_declare_is_ambiguous(folder: Path) -> None:
    (folder / "again.xsd").write_text(ORDER.replace("../common", "common").replace("people.xsd", "orders/people.xsd"))
    pipeline = Receive(validate=[components.Xsd("orders/order.xsd", "again.xsd")])
    assert pipeline.packing_problems(folder) == [
        "validate, component 1: again.xsd: the root '{urn:orders}order' is also declared in orders/order.xsd."
    ]


def test_a_validator_without_schemas_is_a_problem() -> None:
    assert "no schemas" in Receive(validate=[components.Xsd()]).problems()[0]


def test_a_slow_validation_does_not_block_other_threads() -> None:
    """The thread may have been abandoned. A lock of this thread would fail every document after it."""
    schema = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema"><xs:element name="r"><xs:simpleType>
<xs:restriction base="xs:string"><xs:pattern value="(a|aa)*x"/></xs:restriction>
</xs:simpleType></xs:element></xs:schema>"""
    known = CompiledSchemas({"r.xsd": schema.encode()}, ["r.xsd"])
    slow = threading.Thread(target=known.is_certainly_valid, args=(etree.fromstring(f"<r>{'a' * 30}</r>"),))
    slow.start()
    results = [known.is_certainly_valid(etree.fromstring("<r>aax</r>")) for _ in range(3)]
    assert slow.is_alive(), "the slow one was done first, so that this test shows nothing"
    slow.join()
    assert results == [True] * 3
    assert known.find_errors(etree.fromstring("<r>aa</r>"))[0].startswith("line 1: ")
