"""BizTalk's schema files: the properties that they promote, and their problems with file and line."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from postroom.errors import Problem
from postroom.properties import Property
from postroom.schemas import Schema
from postroom.schemas.annotations import LoadedSchemas, load_schemas

ORDERS, PROPERTIES = "urn:orders", "urn:order-properties"


def at(*names: str, namespace: str = ORDERS) -> str:
    """Return a path in BizTalk's form."""
    return "".join(
        f"/@*[local-name()='{name[1:]}' and namespace-uri()='']"
        if name.startswith("@")
        else f"/*[local-name()='{name}' and namespace-uri()='{namespace}']"
        for name in names
    )


def property_schema(*elements: tuple[str, str]) -> str:
    declared = "".join(
        f'<xs:element name="{name}" type="xs:{kind}"><xs:annotation><xs:appinfo>'
        f'<b:fieldInfo propertyGuid="0b4a5c1e-0000-0000-0000-000000000001"/></xs:appinfo></xs:annotation>'
        "</xs:element>\n"
        for name, kind in elements
    )
    return f"""<?xml version="1.0" encoding="utf-16"?>
<xs:schema xmlns:b="http://schemas.microsoft.com/BizTalk/2003" targetNamespace="{PROPERTIES}"
    xmlns:xs="http://www.w3.org/2001/XMLSchema">
<xs:annotation><xs:appinfo><b:schemaInfo schema_type="property"/></xs:appinfo></xs:annotation>
{declared}</xs:schema>"""


def document_schema(annotations: str, fields: str, *, info: str = "", record: str = "", more: str = "") -> str:
    return f"""<?xml version="1.0" encoding="utf-16"?>
<xs:schema xmlns="{ORDERS}" xmlns:b="http://schemas.microsoft.com/BizTalk/2003" xmlns:ns0="{PROPERTIES}"
    targetNamespace="{ORDERS}" elementFormDefault="qualified" xmlns:xs="http://www.w3.org/2001/XMLSchema">
<xs:annotation><xs:appinfo>{info}
<b:imports><b:namespace prefix="ns0" uri="{PROPERTIES}" location=".\\Properties.xsd"/></b:imports>
</xs:appinfo></xs:annotation>
<xs:element name="Order"><xs:annotation><xs:appinfo><b:properties>
{annotations}
</b:properties>{record}</xs:appinfo></xs:annotation>
<xs:complexType><xs:sequence>{fields}</xs:sequence><xs:attribute name="version" type="xs:int"/></xs:complexType>
</xs:element>{more}
</xs:schema>"""


@pytest.fixture
def load(tmp_path: Path):  # type: ignore[no-untyped-def]
    def write_and_load(**files: str) -> LoadedSchemas:
        for name, text in files.items():
            (tmp_path / f"{name}.xsd").write_bytes(text.encode("utf-16"))
        return load_schemas([tmp_path])

    return write_and_load


def promote(name: str, *path: str) -> str:
    return f'<b:property name="ns0:{name}" xpath="{at(*path)}"/>'


def only(loaded: LoadedSchemas) -> Schema:
    assert loaded.problems == ()
    (schema,) = loaded.schemas.schemas
    return schema


def texts(loaded: LoadedSchemas) -> list[str]:
    return [problem.text for problem in loaded.problems]


def test_fields_are_promoted_and_distinguished_as_the_annotations_say(load) -> None:  # type: ignore[no-untyped-def]
    """CTX-12."""
    schema = only(
        load(
            Properties=property_schema(("Region", "string"), ("Total", "decimal"), ("Version", "int")),
            Order=document_schema(
                promote("Region", "Order", "Region")
                + promote("Total", "Order", "Sums", "Total")
                + promote("Version", "Order", "@version")
                + f'<b:property distinguished="true" xpath="{at("Order", "Region")}"/>',
                '<xs:element name="Region" type="xs:string" default="EU"/>'
                '<xs:element name="Sums"><xs:complexType><xs:all><xs:element name="Total" type="xs:decimal"/>'
                "</xs:all></xs:complexType></xs:element>",
            ),
        )
    )
    assert schema.message_type == "urn:orders#Order"
    assert [field.property.key for field in schema.promoted] == [
        Property(name, kind, namespace=PROPERTIES).key
        for name, kind in (("Region", str), ("Total", Decimal), ("Version", int))
    ]
    assert [field.default for field in schema.promoted] == ["EU", None, None]
    assert [field.path for field in schema.distinguished] == [at("Order", "Region")]
    assert not schema.envelope


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8", "utf-8-sig"])
def test_a_utf_8_file_that_declares_utf_16_is_read(tmp_path: Path, encoding: str) -> None:
    text = document_schema("", '<xs:element name="Größe" type="xs:string"/>')
    (tmp_path / "Order.xsd").write_bytes(text.encode(encoding))
    assert only(load_schemas([tmp_path])).message_type == "urn:orders#Order"


def test_types_groups_and_references_are_followed(load) -> None:  # type: ignore[no-untyped-def]
    loaded = load(
        Properties=property_schema(("Region", "string"), ("Day", "date"), ("Code", "int")),
        Order=document_schema(
            promote("Region", "Order", "Line", "Region")
            + promote("Day", "Order", "Line", "Day")
            + promote("Code", "Order", "Code"),
            '<xs:element name="Line" type="Derived"/><xs:element ref="Code"/>',
            more="""<xs:element name="Code" type="Short"/>
                <xs:simpleType name="Short"><xs:restriction base="xs:short"/></xs:simpleType>
                <xs:complexType name="Base"><xs:sequence><xs:group ref="Fields"/></xs:sequence></xs:complexType>
                <xs:complexType name="Derived"><xs:complexContent><xs:extension base="Base"><xs:sequence>
                <xs:element name="Day" type="xs:date"/></xs:sequence></xs:extension></xs:complexContent>
                </xs:complexType>
                <xs:group name="Fields"><xs:sequence><xs:element name="Region" type="xs:token"/></xs:sequence>
                </xs:group>
                """,
        ),
    )
    assert loaded.problems == ()
    # Every global element is a root.
    assert [schema.message_type for schema in loaded.schemas.schemas] == ["urn:orders#Code", "urn:orders#Order"]
    schema = loaded.schemas.find("urn:orders#Order")
    assert {field.property.name: field.form for field in schema.promoted} == {
        "Region": "string",
        "Day": "date",
        "Code": "int",
    }


def test_the_body_xpath_of_an_envelope_is_read(load) -> None:  # type: ignore[no-untyped-def]
    schema = only(
        load(
            Order=document_schema(
                "",
                '<xs:element name="Orders"><xs:complexType/></xs:element>',
                info='<b:schemaInfo is_envelope="yes"/>',
                record=f'<b:recordInfo body_xpath="{at("Order", "Orders")}"/>',
            )
        )
    )
    assert schema.envelope
    assert schema.body == at("Order", "Orders")


def test_an_envelope_without_a_body_xpath_is_a_problem(load) -> None:  # type: ignore[no-untyped-def]
    loaded = load(Order=document_schema("", "", info='<b:schemaInfo is_envelope="yes"/>'))
    assert texts(loaded) == ["the envelope 'Order' has no body_xpath, which is the path of its documents."]


REGION = '<xs:element name="Region" type="xs:string"/>'


@pytest.mark.parametrize(
    ("annotation", "fields", "problem"),
    [
        (promote("Region", "Order", "Regoin"), REGION, "the schema has no field at /Order/Regoin"),
        (promote("Missing", "Order", "Region"), REGION, "has no property 'Missing'"),
        ('<b:property name="ns7:Region" xpath="x"/>', REGION, "no b:imports declares the prefix 'ns7'"),
        ('<b:property name="ns0:Region" xpath="//Region"/>', REGION, "is not a path in BizTalk's form"),
        (
            promote("Total", "Order", "Region"),
            REGION,
            "has the type decimal, but the field 'Region' has the type string",
        ),
        (
            promote("Region", "Order", "Region"),
            '<xs:element name="Region" type="xs:string" maxOccurs="unbounded"/>',
            "cannot be promoted from 'Region', which may occur repeatedly",
        ),
        (
            promote("Region", "Order", "Lines", "Region"),
            (
                '<xs:element name="Lines" maxOccurs="3"><xs:complexType><xs:sequence>'
                f"{REGION}</xs:sequence></xs:complexType></xs:element>"
            ),
            "which may occur repeatedly",
        ),
        (
            promote("Region", "Order", "Region"),
            '<xs:element name="Region" type="xs:hexBinary"/>',
            "values of the type hexBinary cannot be promoted",
        ),
        (
            promote("Region", "Order", "Region") + promote("Region", "Order", "Other"),
            f'{REGION}<xs:element name="Other" type="xs:string"/>',
            "is promoted from two fields of 'Order'",
        ),
    ],
)
def test_the_problem_of_an_annotation_has_its_line(load, annotation, fields, problem) -> None:  # type: ignore[no-untyped-def]
    """CTX-12."""
    loaded = load(
        Properties=property_schema(("Region", "string"), ("Total", "decimal")),
        Order=document_schema(annotation, fields),
    )
    (found,) = loaded.problems
    assert problem in found.text
    assert found.file.endswith("Order.xsd")
    assert found.line == 8


@pytest.mark.parametrize("kind", ["long", "unsignedLong", "base64Binary", "duration", "IDREFS", "time"])
def test_unsupported_types_of_properties_are_problems(load, kind: str) -> None:  # type: ignore[no-untyped-def]
    """CTX-16."""
    (problem,) = load(Properties=property_schema(("Region", kind))).problems
    assert problem.text.startswith("'Region' cannot be a property")
    assert problem.line == 5


def test_a_missing_property_schema_is_reported(load) -> None:  # type: ignore[no-untyped-def]
    assert texts(load(Order=document_schema(promote("Region", "Order", "Region"), REGION))) == [
        "'ns0:Region': the property schema 'urn:order-properties' is not one of the files."
    ]


IMPORT = '<xs:import namespace="urn:common" schemaLocation=".\\Common.xsd"/><xs:annotation>'


@pytest.mark.parametrize(
    ("path", "fields", "problem"),
    [
        (
            ("Order", "Region"),
            '<xs:element name="Region" type="c:Region" xmlns:c="urn:common"/>',
            "cannot be promoted from 'Region': no file declares its type 'c:Region'",
        ),
        (
            ("Order", "Header", "Region"),
            '<xs:element name="Header" type="c:Header" xmlns:c="urn:common"/>',
            "the schema has no field at /Order/Header/Region",
        ),
    ],
)
def test_a_missing_import_is_named(load, path, fields, problem) -> None:  # type: ignore[no-untyped-def]
    order = document_schema(promote("Region", *path), fields)
    files = {"Properties": property_schema(("Region", "string")), "Order": order}
    [text] = texts(load(**files))
    assert text.endswith(f"{problem}.")
    [text] = texts(load(**files | {"Order": order.replace("<xs:annotation>", IMPORT, 1)}))
    assert text.endswith(f"{problem}; the file imports '.\\Common.xsd', which is not one of the files.")


def test_an_import_of_one_of_the_files_is_followed(load) -> None:  # type: ignore[no-untyped-def]
    fields = '<xs:element name="Region" type="c:Region" xmlns:c="urn:common"/>'
    common = """<xs:schema xmlns:xs="http://www.w3.org/2001/XMLSchema" targetNamespace="urn:common">
<xs:simpleType name="Region"><xs:restriction base="xs:string"/></xs:simpleType></xs:schema>"""
    order = document_schema(promote("Region", "Order", "Region"), fields).replace("<xs:annotation>", IMPORT, 1)
    loaded = load(Properties=property_schema(("Region", "string")), Order=order, Common=common)
    assert [field.form for field in only(loaded).promoted] == ["string"]


def test_one_message_type_in_two_files_is_a_problem(load) -> None:  # type: ignore[no-untyped-def]
    """TYP-05."""
    (problem,) = load(A=document_schema("", ""), B=document_schema("", "")).problems
    assert "the message type 'urn:orders#Order' is also in" in problem.text


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"<a", "not well-formed"),
        (b"<a/>", "not an XML schema"),
        (b'<!DOCTYPE a [<!ENTITY e SYSTEM "file:///etc/passwd">]><a/>', "DOCTYPE"),
    ],
)
def test_references_to_other_files_are_rejected(tmp_path: Path, content: bytes, problem: str) -> None:
    (tmp_path / "a.xsd").write_bytes(content)
    (found,) = load_schemas([tmp_path]).problems
    assert problem in found.text


def test_a_folder_without_schemas_and_a_missing_file_are_problems(tmp_path: Path) -> None:
    missing = tmp_path / "missing.xsd"
    assert [problem.text for problem in load_schemas([tmp_path, missing]).problems] == [
        "there are no files *.xsd in this folder.",
        "it cannot be read: No such file or directory.",
    ]
    assert isinstance(load_schemas([missing]).problems[0], Problem)
