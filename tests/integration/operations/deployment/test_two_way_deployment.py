"""Applying two-way ports: their responses are stored, compared and described."""

from __future__ import annotations

from typing import Any

from postroom import Application, Property, adapters, pipelines
from postroom.messagebox.connection import Connection
from postroom.ports.receive_locations import read_receive_locations
from postroom.ports.send_ports import read_send_ports
from tests.support.contents import Contents
from tests.support.deployment import deploy

Product = Property("Quotes.Product", str)
Price = Property("Quotes.Price", int)


def quotes(*, two_way: bool = True, **settings: Any) -> Application:
    app = Application("quotes")
    app.receive_port("Quotes", two_way=two_way).location(
        "quotes", adapters.HttpReceive("/quotes", port=8080), pipeline=pipelines.Json(promote={Product: "product"})
    )
    app.send_port("Pricing", adapters.Http("http://127.0.0.1:9/"), filter=Product == "A1", two_way=two_way, **settings)
    return app


def test_two_way_ports_are_stored_and_an_unchanged_one_is_no_change(connection: Connection) -> None:
    pipeline = pipelines.Json(promote={Price: "price"})
    deploy(connection, quotes(receive_pipeline=pipeline))
    [port], [location] = read_send_ports(connection), read_receive_locations(connection)
    assert (port.is_two_way, location.is_two_way) == (True, True)
    assert (port.receive_pipeline, location.send_pipeline) == (pipeline, pipelines.Send())
    assert deploy(connection, quotes(receive_pipeline=pipeline)).changes == ()


def test_a_port_can_become_two_way_and_one_way_again(connection: Connection) -> None:
    deploy(connection, quotes(two_way=False))
    assert not any(found.is_two_way for found in (*read_send_ports(connection), *read_receive_locations(connection)))
    done = deploy(connection, quotes())
    described = {
        (step.name, difference.field, difference.before, difference.after)
        for step in done.changes
        for difference in step.differences
    }
    assert {("Pricing", "two-way", "False", "True"), ("Quotes", "two-way", "False", "True")} <= described
    assert [one.request_response for one in Contents(connection).subscriptions()] == [True]
    deploy(connection, quotes(two_way=False))
    assert [one.request_response for one in Contents(connection).subscriptions()] == [False]
    assert not any(found.is_two_way for found in (*read_send_ports(connection), *read_receive_locations(connection)))


def test_a_removed_port_is_remembered_as_two_way(connection: Connection) -> None:
    """Its callers are told when a host finds their requests."""
    deploy(connection, quotes())
    deploy(connection, Application("quotes"))
    assert Contents(connection).removed_services() == [("Pricing", True), ("quotes", False)]
