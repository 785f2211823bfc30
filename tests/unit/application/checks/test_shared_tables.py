"""A table has only one send port."""

from __future__ import annotations

from pathlib import Path

from postroom import Application, Property
from postroom.adapters import SparkSink, SparkTable
from postroom.application.checks.shared_endpoints import shared_endpoint_problems

Region = Property("Orders.Region", str)
ORDERS = SparkTable("postgresql://etl@warehouse/orders", "lake.orders")


def problems(new: Application, *deployed: Application) -> list[str]:
    found = shared_endpoint_problems(
        new.definition(), [application.definition() for application in deployed], Path("/home")
    )
    return [problem.text for problem in found]


def application(name: str, *sinks: SparkTable | SparkSink) -> Application:
    app = Application(name)
    app.property(Region)
    for number, sink in enumerate(sinks):
        app.send_port(f"{name}{number}", sink, filter=Region == f"{number}")
    return app


def test_two_ports_with_one_table_are_rejected() -> None:
    [problem] = problems(application("a", ORDERS, ORDERS))
    assert problem.startswith(
        "send port 'a1': 'a0' writes into the same table 'lake.orders', which has one row for each"
    )
    [problem] = problems(application("b", ORDERS), application("a", ORDERS))
    assert problem.startswith("send port 'b0': 'a0' writes")
    another_login = SparkTable("postgres://else@warehouse/orders", "lake.orders", body="none")
    [problem] = problems(application("a", ORDERS, another_login))
    assert "secret" not in problem
    unqualified = SparkTable("postgresql://x", "orders"), SparkTable("postgresql://x", "public.orders")
    assert len(problems(application("a", *unqualified))) == 1
    derby = SparkTable("jdbc:derby:lake", "ORDERS"), SparkTable("jdbc:derby:lake", "orders", options={"user": "etl"})
    assert len(problems(application("a", *derby))) == 1


def test_different_tables_and_shared_folders_are_accepted() -> None:
    others = (
        SparkTable("postgresql://etl@warehouse/orders", "lake.bills"),
        SparkTable("postgresql://b/x", "lake.orders"),
    )
    databases = [SparkTable(f"jdbc:sqlserver://db;databaseName={name}", "dbo.orders") for name in ("a", "b")]
    folders = SparkSink("parquet", "lake"), SparkSink("parquet", "lake")
    assert problems(application("a", ORDERS, *others, *databases, *folders)) == []
    # The replaced application is not checked.
    assert problems(application("a", ORDERS), application("a", ORDERS)) == []
