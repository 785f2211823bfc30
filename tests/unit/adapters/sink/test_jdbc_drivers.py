from __future__ import annotations

import pytest

from postroom.adapters import SparkSink, SparkTable
from postroom.adapters.sink.definition import find_driver
from tests.support.jdbc_jars import find_jar, read_drivers


@pytest.mark.parametrize(
    ("url", "jar"),
    [
        ("jdbc:postgresql://db/orders", "postgresql-"),
        ("jdbc:mysql://db/orders", "mysql-connector-j-"),
        ("jdbc:sqlserver://db;databaseName=orders", "mssql-jdbc-"),
        ("jdbc:oracle:thin:@db:1521/orders", "ojdbc"),
    ],
)
def test_the_driver_of_a_url_is_the_one_that_its_jar_announces(url: str, jar: str) -> None:
    assert find_driver(url, {}) in read_drivers(find_jar(jar))


def test_the_option_driver_takes_precedence() -> None:
    sink = SparkTable("jdbc:postgresql://db/orders", "orders", options={"Driver": "com.example.Driver"})
    assert sink.jdbc_driver == "com.example.Driver"
    assert sink.writer_options == {"Driver": "com.example.Driver"}


def test_the_driver_is_an_option_of_the_writer() -> None:
    table = SparkTable("jdbc:mysql://db/orders", "orders", options={"user": "etl"})
    assert table.writer_options == {"user": "etl", "driver": "com.mysql.cj.jdbc.Driver"}
    sink = SparkSink("jdbc", options={"url": "jdbc:postgresql://db/orders", "dbtable": "orders"})
    assert sink.writer_options["driver"] == "org.postgresql.Driver"


def test_sinks_without_jdbc_and_unknown_databases_have_no_driver() -> None:
    assert SparkTable("postgresql://db/orders", "orders").jdbc_driver is None
    assert SparkSink("parquet", "out").jdbc_driver is None
    assert SparkSink("jdbc", options={"url": "jdbc:unknown://db"}).jdbc_driver is None
    assert SparkSink("jdbc", options={"url": "jdbc:unknown://db"}).writer_options == {"url": "jdbc:unknown://db"}
