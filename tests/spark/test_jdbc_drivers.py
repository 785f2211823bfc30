"""A sink whose jar is missing is reported and keeps its messages. With the jar of a real driver it writes them."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from psycopg.conninfo import conninfo_to_dict

from postroom.adapters import SparkSink, SparkTable
from postroom.cli.exit_codes import ExitCode
from postroom.errors import StateError
from postroom.messagebox.connection import Login
from postroom.messagebox.maintenance.check import check
from postroom.spark.pipeline_process import PipelineProcess
from tests.support.box import Box, Region
from tests.support.jdbc_jars import find_jar
from tests.support.sinks import add_sink, publish
from tests.support.tcp_forwarder import forward_tcp
from tests.support.waiting import wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DRIVER = "This Spark session does not have the JDBC driver org.postgresql.Driver."


def count_kept(box: Box) -> tuple[int, int, int, int]:
    """Return the numbers of waiting, retrying and suspended messages, and of fixed batches."""
    return (
        box.count("queued"),
        box.count("scheduled"),
        box.count("suspended"),
        box.count("sink batches"),
    )


def test_a_missing_jar_is_reported_at_start_and_again_when_messages_wait(
    session: SparkSession, box: Box, login: Login, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    add_sink(box, SparkTable("jdbc:postgresql://127.0.0.1:1/orders", "orders"), name="Table")
    add_sink(box, SparkSink("delta", "out/delta"), name="Lake")
    add_sink(box, SparkSink("parquet", "out/files"), name="Files", filter="Orders.Region == 'none'")
    add_sink(box, SparkSink("iceberg", "out/idle"), name="Idle", filter="Orders.Region == 'none'")

    def list_reports() -> list[str]:
        return [f"{one.port}: {one.reason}" for one in box.running_sinks() if one.state == "failing"]

    caplog.set_level(logging.DEBUG, "postroom.spark.sinks")  # a process logs a failure of a sink once
    stop = threading.Event()
    process = PipelineProcess(session, box.host(), login=login, home=tmp_path)
    thread = threading.Thread(target=process.run, args=(stop,))
    thread.start()
    try:
        wait_until(lambda: len(list_reports()) == 3, what="the reports of the three sinks")
        idle, lake, table = list_reports()
        assert idle.startswith("Idle: This Spark session cannot read or write the format 'iceberg'.")
        assert table.startswith(f"Table: {DRIVER}")
        assert lake.startswith("Lake: This Spark session cannot read or write the format 'delta'.")
        publish(box, b"a", b"b")
        wait_until(lambda: caplog.text.count(": This Spark session") >= 5, what="both sinks to be tried")
    finally:
        stop.set()
        thread.join()
    once = PipelineProcess(session, box.host(), login=login, home=tmp_path, once=True)
    with pytest.raises(StateError) as raised:
        once.run(threading.Event())
    assert DRIVER in str(raised.value)
    assert "--conf spark.jars=FILE" in str(raised.value)
    assert "'delta'" in str(raised.value)
    assert "'iceberg'" in str(raised.value), "no message waits for this sink"
    assert count_kept(box) == (4, 0, 0, 0)


@pytest.mark.sample("Spark of its own")
def test_rows_are_written_with_a_real_driver(box: Box, tmp_path: Path) -> None:
    """The pipeline runs as users run it: the jars of a session are given when its JVM is started."""
    run_once = [sys.executable, "-m", "postroom", "pipeline", "run", "Default", "--once", "--home", str(tmp_path)]
    settings = ("spark.driver.memory=512m", f"spark.jars={find_jar('postgresql-')}")
    arguments = ["--master", "local[1]", *(word for setting in settings for word in ("--conf", setting))]
    with forward_tcp(box.url) as port:
        login = conninfo_to_dict(box.url)
        url = f"jdbc:postgresql://127.0.0.1:{port}/{login['dbname']}"
        user = {"user": str(login["user"])}
        merged = SparkTable(url, "public.merged", columns={"region": Region}, body="text", options=user)
        appended = {"url": url, "dbtable": "public.appended", **user}
        add_sink(box, merged, name="Merged")
        add_sink(box, SparkSink("jdbc", columns={"region": Region}, body="text", options=appended), name="Appended")
        ids = publish(box, b"a", b"b", b"c")

        environment = {**os.environ, "POSTROOM_DATABASE": box.url}
        written = subprocess.run([*run_once, *arguments], env=environment, capture_output=True, text=True, check=False)
        assert written.returncode == ExitCode.OK, written.stderr
    for table in ("merged", "appended"):
        rows = box.connection.execute(f"SELECT message_id, body FROM public.{table} ORDER BY body").fetchall()
        assert rows == list(zip(ids, ("a", "b", "c"), strict=True))
    assert count_kept(box) == (0, 0, 0, 0)
    assert check(box.connection) == []
