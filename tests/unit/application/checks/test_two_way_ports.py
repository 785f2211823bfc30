"""Problems of two-way ports."""

from __future__ import annotations

from typing import Any

import pytest

from postroom import Application, BackupTransport, Property, adapters, maps, pipelines
from postroom.application.checks.problems import find_declaration_problems
from postroom.application.definition import ApplicationDefinition

Product = Property("Quotes.Product", str)
Price = Property("Quotes.Price", int)
RECEIVE = adapters.HttpReceive("/quotes", port=8080)
SEND = adapters.Http("http://127.0.0.1:9000/")


def declare(receive: Any = RECEIVE, send: Any = SEND, *, port: Any = None, sending: Any = None) -> Application:
    app = Application("quotes")
    app.receive_port("Quotes", **(port or {})).location(
        "quotes", receive, pipeline=pipelines.Json(promote={Product: "product"})
    )
    app.send_port("Pricing", send, filter=Product == "A1", **(sending or {}))
    return app


def list_texts(app: Application) -> list[str]:
    return [problem.text for problem in find_declaration_problems(app)]


def test_two_way_ports_are_part_of_the_stored_definition() -> None:
    app = declare(
        port={"two_way": True, "send_pipeline": pipelines.Send()},
        sending={"two_way": True, "receive_pipeline": pipelines.Json(promote={Price: "price"})},
    )
    definition = app.definition()
    assert definition.receive_ports[0].two_way
    assert definition.send_ports[0].two_way
    assert {prop.key for prop in definition.properties} == {Product.key, Price.key}
    assert ApplicationDefinition.from_stored(definition.to_stored()) == definition


def test_the_responses_of_a_two_way_send_port_pass_through_by_default() -> None:
    [port] = declare(sending={"two_way": True}).definition().send_ports
    assert port.receive_pipeline == pipelines.PassThrough()


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (
            {"receive": adapters.File("in"), "port": {"two_way": True}},
            (
                "receive port 'Quotes': the location 'quotes' uses the adapter 'file', which cannot return a response;"
                " a two-way receive port needs adapters.HttpReceive(...)."
            ),
        ),
        (
            {"send": adapters.File("out"), "sending": {"two_way": True}},
            (
                "send port 'Pricing': the adapter 'file' has no response to what it sends; a two-way send port"
                " needs adapters.Http(...)."
            ),
        ),
        (
            {"send": adapters.SparkSink("parquet", "lake"), "sending": {"two_way": True}},
            (
                "send port 'Pricing': the adapter 'spark_sink' has no response to what it sends; a two-way send port"
                " needs adapters.Http(...)."
            ),
        ),
        (
            {"sending": {"two_way": True, "backup": BackupTransport(adapters.File("late"))}},
            "send port 'Pricing': backup: the adapter 'file' has no response to what it sends.",
        ),
        (
            {"port": {"two_way": True, "route_failures": True}},
            (
                "receive port 'Quotes': route_failures cannot be used with two_way; a failed request is suspended,"
                " and its caller gets an error."
            ),
        ),
        ({"port": {"two_way": 1}}, "receive port 'Quotes': two_way is 1, but must be True or False."),
        ({"sending": {"two_way": "yes"}}, "send port 'Pricing': two_way is 'yes', but must be True or False."),
        (
            {"port": {"send_pipeline": pipelines.Send()}},
            (
                "receive port 'Quotes': send_pipeline is set, but the port is one-way and has no responses; add"
                " two_way=True."
            ),
        ),
        (
            {"sending": {"receive_pipeline": pipelines.Json()}},
            (
                "send port 'Pricing': receive_pipeline is set, but the port is one-way and has no responses; add"
                " two_way=True."
            ),
        ),
        (
            {"sending": {"response_maps": [maps.Xslt("a.xsl", source="a", target="b")]}},
            (
                "send port 'Pricing': response_maps is set, but the port is one-way and has no responses; add"
                " two_way=True."
            ),
        ),
        (
            {"sending": {"two_way": True, "receive_pipeline": pipelines.Send()}},
            "is not a pipeline, such as pipelines.Json(...).",
        ),
        (
            {"port": {"two_way": True, "send_pipeline": pipelines.Json()}},
            "is not a send pipeline; write pipelines.Send(...).",
        ),
        (
            {"receive": adapters.HttpReceive("/quotes", port=8080, response_timeout=0)},
            "location 'quotes': adapter: response_timeout is 0 seconds, but must be above 0 and at most 86400.",
        ),
    ],
)
def test_a_port_that_cannot_have_responses_is_reported(arguments: dict[str, Any], text: str) -> None:
    [problem] = list_texts(declare(**arguments))
    assert problem.endswith(text)
