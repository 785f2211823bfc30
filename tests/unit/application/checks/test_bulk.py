"""A reader of rows and its pipeline fit each other, or `plan` says why not."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal

import pytest

from postroom import Application, Property, adapters, maps, pipelines
from postroom.adapters import ReceiveAdapter
from postroom.errors import DefinitionRefused
from postroom.pipelines import ReceivePipeline

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
When = Property("Orders.When", datetime)
CSV = adapters.SparkReader("csv", "in", schema="id bigint, region string, total decimal(9,2), day date, t array<int>")


def application(adapter: ReceiveAdapter, pipeline: ReceivePipeline | None) -> Application:
    app = Application("orders")
    app.receive_port("In").location("bulk", adapter, pipeline=pipeline)
    return app


@pytest.mark.parametrize(
    ("adapter", "pipeline", "why"),
    [
        (CSV, pipelines.Json(), "its pipeline is pipelines.Rows(...). Bulk is recoverable only."),
        (CSV, pipelines.JsonLines(), "its pipeline is pipelines.Rows(...)."),
        (CSV, pipelines.Rows(recoverable=False), "bulk is recoverable only"),
        (adapters.File("in"), pipelines.Rows(), "another adapter has no rows"),
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
def test_what_does_not_fit(adapter: ReceiveAdapter, pipeline: ReceivePipeline, why: str) -> None:
    with pytest.raises(DefinitionRefused) as refused:
        application(adapter, pipeline).definition()
    assert any(why in problem.text for problem in refused.value.problems), refused.value.problems


def test_rows_are_not_mapped_on_their_way_in() -> None:
    app = Application("orders")
    app.receive_port("In", maps=[maps.Xslt("a.xslt", source="order", target="invoice")]).location("bulk", CSV)
    with pytest.raises(DefinitionRefused, match="reads rows, which are not mapped"):
        app.definition()


def test_a_row_cannot_be_disassembled_out_of_a_file() -> None:
    receive = pipelines.Receive(disassemble=[pipelines.Rows()])
    assert any("neither a component nor a function" in problem for problem in receive.problems())


def test_the_pipeline_is_stored_with_what_its_reader_yields() -> None:
    [port] = application(CSV, pipelines.Rows(promote={Region: "region", Total: "id"})).definition().receive_ports
    stored = port.locations[0].pipeline
    assert isinstance(stored, pipelines.Rows)
    assert (stored.body, stored.column, stored.columns) == ("json", None, ("id", "region", "total", "day", "t"))
    assert pipelines.load_pipeline(stored.model_dump(mode="json")) == stored


def test_without_a_pipeline_the_body_is_what_the_format_suggests() -> None:
    for format, column in (("text", "value"), ("binaryFile", "content")):
        [port] = application(adapters.SparkReader(format, "in"), None).definition().receive_ports
        stored = port.locations[0].pipeline
        assert isinstance(stored, pipelines.Rows)
        assert (stored.body, stored.column) == (None, column)
