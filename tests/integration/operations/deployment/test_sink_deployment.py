"""Applying applications with sinks: plans and rejected changes."""

from __future__ import annotations

import pytest

from postroom import Application, Property, adapters
from postroom.adapters import SendDefinition, SparkSink
from postroom.errors import DefinitionRefused
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection
from postroom.operations.deployment.apply import plan
from postroom.operations.deployment.plan import ChangeKind, PlanStep
from postroom.operations.ports.send_ports import list_ports
from postroom.operations.subscriptions import list_subscriptions
from postroom.ports.send_ports import read_send_ports
from tests.support.deployment import HOME, deploy

Region = Property("Orders.Region", str)


def orders(adapter: SendDefinition) -> Application:
    app = Application("orders")
    app.property(Region)
    app.send_port("Lake", adapter, filter=Region == "EU")
    return app


def plan_port(connection: Connection, app: Application) -> PlanStep:
    planned = plan(connection, app.definition(), home=HOME)
    return next(step for step in planned.steps if step.kind is ChangeKind.SEND_PORT)


def test_the_plan_shows_the_guarantee_of_each_sink(connection: Connection) -> None:
    deploy(connection, Application("orders"))
    parquet = orders(adapters.SparkSink("parquet", "lake"))
    assert "; exactly once: each batch is a directory that appears whole" in plan_port(connection, parquet).note
    deploy(connection, parquet)
    other = plan_port(connection, orders(adapters.SparkSink("delta", "lake")))
    assert other.note == "at least once: the writer 'delta' may repeat a batch, rows have their message_id"
    assert next((one.field, one.after) for one in other.differences) == ("adapter format", "delta")
    deploy(connection, orders(adapters.SparkSink("delta", "lake")))
    (port,) = read_send_ports(connection)
    assert port.is_sink
    assert isinstance(port.adapter, SparkSink)
    assert port.adapter.format == "delta"


def test_a_sink_subscribes_with_its_own_service_class(connection: Connection) -> None:
    deploy(connection, orders(adapters.SparkSink("parquet", "lake")))
    assert [subscription.service_class for subscription in list_subscriptions(connection)] == [ServiceClass.SPARK_SINKS]
    assert [port.name for port in list_ports(connection)] == ["Lake"]


def test_a_port_cannot_become_a_sink(connection: Connection) -> None:
    deploy(connection, orders(adapters.SparkSink("parquet", "lake")))
    with pytest.raises(DefinitionRefused, match="deployed as a Spark sink and cannot become static"):
        deploy(connection, orders(adapters.Null()))
    deploy(connection, Application("orders"))
    deploy(connection, orders(adapters.Null()))
    with pytest.raises(DefinitionRefused, match="deployed as a static one and cannot become a Spark sink"):
        deploy(connection, orders(adapters.SparkSink("parquet", "lake")))


def test_a_problem_of_a_sink_is_a_problem_of_the_application() -> None:
    with pytest.raises(DefinitionRefused, match="needs a path"):
        orders(adapters.SparkSink("parquet")).definition()


def test_two_ports_cannot_write_to_the_same_table(connection: Connection) -> None:
    table = adapters.SparkTable("postgresql://etl@warehouse/orders", "lake.orders")
    deploy(connection, orders(table))
    deploy(connection, orders(table))
    bills = Application("bills")
    bills.property(Region)
    bills.send_port("Bills", table, filter=Region == "EU")
    with pytest.raises(DefinitionRefused, match=r"'Lake' writes into the same table 'lake\.orders'"):
        deploy(connection, bills)
