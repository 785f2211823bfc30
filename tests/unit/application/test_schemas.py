"""The schemas of an application are read next to its file, and their problems are reported with the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.application.definition import ApplicationDefinition
from postroom.application.loading.load import load
from postroom.errors import DefinitionRefused
from postroom.pipelines import XmlReceive
from postroom.properties import Property

_B = 'xmlns:b="http://schemas.microsoft.com/BizTalk/2003" xmlns:xs="http://www.w3.org/2001/XMLSchema"'
PROPERTIES = f"""<xs:schema {_B} targetNamespace="urn:properties">
<xs:annotation><xs:appinfo><b:schemaInfo schema_type="property"/></xs:appinfo></xs:annotation>
<xs:element name="Region" type="xs:string"/></xs:schema>"""
ORDER = f"""<xs:schema {_B}>
<xs:annotation><xs:appinfo><b:imports><b:namespace prefix="p" uri="urn:properties"/></b:imports></xs:appinfo>
</xs:annotation><xs:element name="order"><xs:annotation><xs:appinfo><b:properties>
<b:property name="p:Region" xpath="/*[local-name()='order']/*[local-name()='region']"/>
<b:property distinguished="true" xpath="/*[local-name()='order']/*[local-name()='region']"/>
</b:properties></xs:appinfo></xs:annotation>
<xs:complexType><xs:sequence><xs:element name="region" type="xs:string"/></xs:sequence></xs:complexType></xs:element>
</xs:schema>"""
APPLICATION = """
from postroom import Application, Property, adapters, pipelines
app = Application("orders")
known = app.schemas("schemas")
Region = Property("Region", str, namespace="urn:properties")
app.receive_port("In").location("drop", adapters.File("in"), pipeline=pipelines.XmlReceive(schemas=known))
app.send_port("Europe", adapters.Null(), filter=Region == "EU")
"""


def write(folder: Path, *, order: str = ORDER) -> Path:
    (folder / "schemas").mkdir()
    (folder / "schemas" / "Properties.xsd").write_bytes(PROPERTIES.encode("utf-16"))
    (folder / "schemas" / "Order.XSD").write_text(order, encoding="utf-8")
    (folder / "app.py").write_text(APPLICATION, encoding="utf-8")
    return folder / "app.py"


def test_properties_of_a_schema_can_be_used_in_filters_and_are_stored_with_the_location(tmp_path: Path) -> None:
    definition = load(write(tmp_path))
    (prop,) = definition.properties
    assert prop.key == Property("Region", str, namespace="urn:properties").key
    (location,) = definition.receive_ports[0].locations
    assert isinstance(location.pipeline, XmlReceive)
    assert [schema.message_type for schema in location.pipeline.schemas.schemas] == ["order"]
    assert ApplicationDefinition.from_stored(definition.to_stored()) == definition


def test_a_wrong_annotation_is_reported_with_its_file_and_line(tmp_path: Path) -> None:
    path = write(tmp_path, order=ORDER.replace("()='region']\"/>", "()='regoin']\"/>", 1))
    with pytest.raises(DefinitionRefused) as error:
        load(path)
    first = next(problem for problem in error.value.problems if "regoin" in problem.text)
    assert (Path(first.file).name, first.line) == ("Order.XSD", 4)


def test_missing_schemas_are_reported_with_the_line_of_the_declaration(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APPLICATION, encoding="utf-8")
    with pytest.raises(DefinitionRefused) as error:
        load(tmp_path / "app.py")
    first = next(problem for problem in error.value.problems if "'schemas'" in problem.text)
    assert (Path(first.file).name, first.line) == ("app.py", 4)
