"""The maps of a port in a definition: their problems, and how they are stored."""

from __future__ import annotations

import json
import pickle
import textwrap
from pathlib import Path
from typing import Any

import pytest

from postroom.application.loading.load import load
from postroom.errors import DefinitionError, DefinitionRefused
from postroom.maps import Map, Python, Xslt
from postroom.maps.port_maps import NO_MAPS, PortMaps, load_maps, map_problems
from postroom.maps.running import MapResult
from postroom.message import Message
from postroom.pipelines import Json, Xml, XmlReceive
from postroom.properties import Property
from postroom.schemas import Schema, Schemas

Region = Property("Orders.Region", str)
ORDER: dict[str, Any] = {"source": "order", "target": "invoice"}


def to_invoice(message: Message) -> bytes:
    return b"<invoice/>"


class ToInvoice(Map):
    def transform(self, message: Message) -> bytes:
        return b"<invoice/>"


@pytest.mark.parametrize(
    ("maps", "problem"),
    [
        ("x", "maps is 'x', but must be a list"),
        ([ToInvoice], "map 1: ToInvoice is a class; write ToInvoice(...)."),
        ([to_invoice], "is not a map, such as maps.Xslt(...)."),
        ([Xslt("none.xslt", **ORDER)], "map 1: the file 'none.xslt' cannot be read"),
        ([Xslt("../none.xslt", **ORDER)], "outside the application's folder"),
        ([Xslt("bad.xslt", **ORDER)], "map 1: bad.xslt:2: it is not XSLT 1.0: xsl:if : test is not defined."),
        ([Python(5, **ORDER)], "map 1: 5 is not a function."),
        ([Python(lambda message: b"", **ORDER)], "has no name to load it by"),
        ([ToInvoice(source="", target="b")], "source is empty"),
        ([ToInvoice(source="a", target="b" * 300)], "target: "),
        ([ToInvoice(**ORDER, seconds=0)], "seconds is 0.0"),
        ([ToInvoice(**ORDER, read=Xml(split="/a/b"))], "read: it has a split"),
        ([ToInvoice(**ORDER, read=Json(promote={Region: ""}))], "read: The path of Orders.Region is empty."),
        ([ToInvoice(**ORDER, read=XmlReceive(schemas=Schemas(schemas=(Schema(message_type="x"),))))], "no schema for"),
        ([ToInvoice(**ORDER), Python(to_invoice, **ORDER)], "2 maps have the source 'order'"),
    ],
)
def test_the_problems_of_maps_are_reported(folder: Path, maps: Any, problem: str) -> None:
    (folder / "bad.xslt").write_text(
        '<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">\n'
        '<xsl:template match="/"><xsl:if/></xsl:template></xsl:stylesheet>'
    )
    assert problem in "\n".join(map_problems(maps, folder))


def test_files_that_are_too_large_in_total_are_rejected(folder: Path) -> None:
    comment = b"<!--" + b" " * (3 << 20) + b"-->"
    for name in "ab":
        (folder / f"{name}.xslt").write_bytes((folder / "order-to-invoice.xslt").read_bytes() + comment)
    maps = [Xslt(f"{name}.xslt", source=name, target="invoice") for name in "ab"]
    assert "in total" in "\n".join(map_problems(maps, folder))


def test_maps_are_shipped_with_their_files(folder: Path) -> None:
    packed = PortMaps.pack([Xslt("order-to-invoice.xslt", **ORDER)], folder)
    stored = json.loads(json.dumps(packed.model_dump(mode="json")))
    (folder / "order-to-invoice.xslt").unlink()
    assert load_maps(stored).model_dump(mode="json") == stored
    maps = load_maps(stored).running
    found = maps.find("order")
    assert found is not None
    [made] = maps.run([(found, Message.of(b"<order><total>3</total></order>"))])
    assert isinstance(made, MapResult)
    assert load_maps(stored).running is maps
    assert pickle.loads(pickle.dumps(packed)).running is maps


def test_an_invalid_stored_map_is_rejected() -> None:
    with pytest.raises(DefinitionError, match="not a stored list of maps"):
        load_maps({"maps": [{"a": 1}]})
    assert load_maps({}) == NO_MAPS
    assert load_maps({"maps": []}) is NO_MAPS


APPLICATION = """
    from postroom import Application, Message, Property, adapters, maps, pipelines
    from shared import twice

    Amount = Property("Invoices.Amount", int)


    def to_invoice(message: Message) -> bytes:
        return twice(message.data)


    app = Application("orders")
    app.receive_port(
        "In",
        maps=[maps.Python(to_invoice, source="order", target="invoice", read=pipelines.Json(promote={Amount: "a"}))],
    ).location("drop", adapters.File("in"), pipeline=pipelines.Json(message_type="order"))
    app.send_port("Out", adapters.File("out"), filter=Amount == 1, maps=[
        maps.Xslt("order-to-invoice.xslt", source="order", target="invoice"),
    ])
"""


def test_an_application_declares_maps_and_filters_on_what_they_promote(folder: Path) -> None:
    (folder / "shared.py").write_text("def twice(data): return data + data")
    (folder / "app.py").write_text(textwrap.dedent(APPLICATION))
    definition = load(folder / "app.py")
    [port] = definition.receive_ports
    assert sorted(port.maps.files.contents) == ["app.py", "shared.py"]
    assert [prop.dotted_name for prop in definition.properties] == ["Invoices.Amount"]
    [send_port] = definition.send_ports
    assert list(send_port.maps.files.contents) == ["order-to-invoice.xslt"]
    assert type(definition).from_stored(definition.to_stored()).to_stored() == definition.to_stored()


def test_problems_of_maps_have_the_place_of_their_port(folder: Path) -> None:
    (folder / "app.py").write_text(
        "from postroom import Application, adapters, maps\n"
        "app = Application('orders')\n"
        "app.receive_port('In', maps=[maps.Xslt('none.xslt', source='a', target='b'), 5])\n"
        "app.send_port('Out', adapters.File('out'), maps=[maps.Xslt('none.xslt', source='a', target='b')])\n"
    )
    with pytest.raises(DefinitionRefused) as refused:
        load(folder / "app.py")
    assert [(problem.line, problem.text.partition(" cannot")[0]) for problem in refused.value.problems] == [
        (3, "receive port 'In': map 1: the file 'none.xslt'"),
        (3, "receive port 'In': map 2: 5 is not a map, such as maps.Xslt(...)."),
        (4, "send port 'Out': map 1: the file 'none.xslt'"),
    ]
