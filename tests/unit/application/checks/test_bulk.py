"""The pipeline of a location has to fit its reader of rows."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest

from postroom import Application, Property, adapters, maps, pipelines
from postroom.adapters import ReceiveDefinition
from postroom.errors import DefinitionRefused
from postroom.pipelines import ReceivePipeline

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
When = Property("Orders.When", datetime)
CSV = adapters.SparkReader("csv", "in", schema="id bigint, region string, total decimal(9,2), day date, t array<int>")


def application(adapter: ReceiveDefinition, pipeline: ReceivePipeline | None) -> Application:
    app = Application("orders")
    app.receive_port("In").location("bulk", adapter, pipeline=pipeline)
    return app


@pytest.mark.parametrize(
    ("adapter", "pipeline", "why"),
    [
        (CSV, pipelines.Json(), "its pipeline must be pipelines.Rows(...). Bulk files are always recoverable."),
        (CSV, pipelines.JsonLines(), "its pipeline must be pipelines.Rows(...)."),
        (CSV, pipelines.Rows(recoverable=False), "bulk files are always recoverable"),
        (adapters.File("in"), pipelines.Rows(), "other adapters do not read rows"),
        (CSV, pipelines.Rows(promote={Region: "area"}), "promoted from 'area', which the reader does not yield"),
        (CSV, pipelines.Rows(promote={Total: "region"}), "is a Decimal property, but the column 'region' is string"),
        (CSV, pipelines.Rows(promote={When: "day"}), "is a datetime property, but the column 'day' is date"),
        (CSV, pipelines.Rows(column="note"), "the body is the column 'note'"),
        (CSV, pipelines.Rows(column="id"), "the column 'id' is bigint; a body is text or binary"),
        (CSV, pipelines.Rows(column="region", body="json"), "a message has one body"),
        (CSV, pipelines.Rows(body="csv"), "body is 'csv', but the column 't' is array<int>"),
        (CSV, pipelines.Rows(message_type=""), "The message type is empty"),
    ],
)
def test_a_pipeline_that_does_not_fit_its_reader_is_rejected(
    adapter: ReceiveDefinition, pipeline: ReceivePipeline, why: str
) -> None:
    with pytest.raises(DefinitionRefused) as error:
        application(adapter, pipeline).definition()
    assert any(why in problem.text for problem in error.value.problems), error.value.problems


def test_a_receive_port_with_maps_cannot_read_rows() -> None:
    app = Application("orders")
    app.receive_port("In", maps=[maps.Xslt("a.xslt", source="order", target="invoice")]).location("bulk", CSV)
    with pytest.raises(DefinitionRefused, match="reads rows, which are not mapped"):
        app.definition()


def test_rows_are_not_a_disassembler() -> None:
    receive = pipelines.Receive(disassemble=[pipelines.Rows()])
    assert any("neither a component nor a function" in problem for problem in receive.problems())


def test_the_pipeline_is_stored_with_the_columns_of_its_reader() -> None:
    [port] = application(CSV, pipelines.Rows(promote={Region: "region", Total: "id"})).definition().receive_ports
    stored = port.locations[0].pipeline
    assert isinstance(stored, pipelines.Rows)
    assert (stored.body, stored.column, stored.columns) == ("json", None, ("id", "region", "total", "day", "t"))
    assert pipelines.load_pipeline(stored.model_dump(mode="json")) == stored


def test_the_default_body_is_the_content_column_of_the_format() -> None:
    for format, column in (("text", "value"), ("binaryFile", "content")):
        [port] = application(adapters.SparkReader(format, "in"), None).definition().receive_ports
        stored = port.locations[0].pipeline
        assert isinstance(stored, pipelines.Rows)
        assert (stored.body, stored.column) == (None, column)
