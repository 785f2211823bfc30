"""Declarations of an application, and the definition that is made of them."""

from __future__ import annotations

import inspect
import json
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest
from pydantic import ValidationError

from postroom import BTS, Application, Property, Retry, adapters, pipelines
from postroom.application import ApplicationDefinition, load
from postroom.errors import DefinitionError
from postroom.filters.text import parse

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
EXAMPLE = Path(__file__).parents[3] / "examples" / "orders" / "app.py"


def orders() -> Application:
    app = Application("orders")
    app.property(Region, Total)
    app.host("Fast")
    app.receive_port("OrdersIn").location("first", adapters.File("in")).location(
        "second",
        adapters.File("in2"),
        pipeline=pipelines.Json(promote={Region: "region"}),
        host="fast",
        enabled=False,
    )
    app.send_port("Europe", adapters.File("out"), filter=Region == "EU")
    app.send_port(
        "Text",
        adapters.Null(),
        filter="Region == 'EU' and Total >= 10 or BTS.ReceivePortName == 'OrdersIn'",
        retry=Retry(count=0, interval=timedelta(minutes=1)),
        priority=1,
        host="Fast",
        state="stopped",
    )
    app.send_port("Directed", adapters.Http("https://example.com/"))
    return app


def test_the_example_has_no_problems() -> None:
    definition = load(EXAMPLE)
    assert definition.name == "orders"
    assert [port.name for port in definition.receive_ports] == ["OrdersIn"]
    assert [port.name for port in definition.send_ports] == ["Europe", "BigOrders", "Audit"]
    assert [prop.dotted_name for prop in definition.properties] == ["Orders.Priority", "Orders.Region", "Orders.Total"]
    assert [host.name for host in definition.hosts] == ["Main"]


def test_the_definition_contains_every_declaration() -> None:
    definition = orders().definition()
    first, second = definition.receive_ports[0].locations
    assert (first.name, first.pipeline, first.host, first.enabled) == ("first", pipelines.PassThrough(), "Main", True)
    assert (second.name, second.host, second.enabled) == ("second", "Fast", False)
    europe, text, directed = definition.send_ports
    assert europe.filter == (Region == "EU")
    assert (europe.retry, europe.priority, europe.host, europe.state) == (
        Retry(count=3, interval=300),
        5,
        "Main",
        "started",
    )
    assert text.filter == (Region == "EU") & (Total >= 10) | (BTS.ReceivePortName == "OrdersIn")
    assert (text.retry.count, text.retry.interval) == (0, 60.0)
    assert (text.priority, text.host, text.state) == (1, "Fast", "stopped")
    assert directed.filter is None
    assert [host.name for host in definition.hosts] == ["Fast", "Main"]
    assert definition.properties == (Region, Total)


def test_a_definition_can_be_stored_and_read() -> None:
    definition = orders().definition()
    stored = json.loads(json.dumps(definition.to_stored()))
    assert ApplicationDefinition.from_stored(stored) == definition
    assert stored["send_ports"][0]["filter"] == "Orders.Region == 'EU'"
    assert (
        parse(stored["send_ports"][1]["filter"], [Region, Total, BTS.ReceivePortName])
        == definition.send_ports[1].filter
    )


def test_the_source_location_is_neither_stored_nor_compared() -> None:
    definition = orders().definition()
    lines, first_line = inspect.getsourcelines(orders)
    declared = [
        definition.position,
        definition.receive_ports[0].locations[1].position,
        definition.send_ports[1].position,
    ]
    assert {position.file for position in declared} == {__file__}
    source_lines = [lines[position.line - first_line].strip() for position in declared]
    assert source_lines[0] == 'app = Application("orders")'
    assert source_lines[1].endswith(".location(")
    assert source_lines[2] == "app.send_port("
    assert "position" not in json.dumps(definition.to_stored())
    assert "app.py" not in json.dumps(load(EXAMPLE).to_stored())


def test_a_changed_application_has_another_definition() -> None:
    changed = orders()
    changed.send_port("New", adapters.Null())
    assert changed.definition() != orders().definition()


def test_a_definition_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        orders().definition().name = "other"


@pytest.mark.parametrize(
    "change",
    [
        {"name": 5},
        {"hosts": [{"name": "A", "colour": "red"}]},
        {"properties": ["x"]},
        {"properties": 1},
        {"properties": [{"key": {}, "type": 1}]},
        {"send_ports": True},
        {"send_ports": [{"name": "A", "host": "Main", "adapter": {"kind": "sink", "unknown": 1}}]},
        {"receive_ports": [{"name": "A", "locations": [{"pipeline": {"kind": "receive", "files": {"a": 1}}}]}]},
        {"receive_ports": [{"name": "A", "locations": [{"pipeline": {"kind": "receive", "files": {"a": "bm8="}}}]}]},
    ],
)
def test_invalid_stored_applications_are_rejected(change: dict[str, object]) -> None:
    with pytest.raises(DefinitionError, match="not a stored application"):
        ApplicationDefinition.from_stored({**orders().definition().to_stored(), **change})


def test_retry_numbers_of_the_wrong_type_raise_at_once() -> None:
    with pytest.raises(DefinitionError, match="count"):
        Retry(count="many")  # type: ignore[arg-type]
    with pytest.raises(DefinitionError, match="interval"):
        Retry(interval=float("inf"))
