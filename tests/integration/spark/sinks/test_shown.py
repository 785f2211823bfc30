"""The CLI shows whether sinks are served, what they have written, why they fail, and their guarantee."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.adapters import SparkSink, SparkTable
from postroom.errors import NotAllowed
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.connection import connect
from postroom.messagebox.coordination.running_processes import ProcessKind, register_process
from postroom.messagebox.sinks.sink_progress import SinkReport, lock_sinks_served
from postroom.operations.describe import describe_value
from postroom.operations.ports.send_ports import get_guarantee
from postroom.operations.ports.sinks import SinkListing, list_sinks
from postroom.ports.send_ports import read_send_ports
from tests.support.box import Box, Region
from tests.support.contents import Contents
from tests.support.sinks import add_sink, drain_batch, make_drain, publish, read_port_id
from tests.support.waiting import wait_until


def shown(box: Box) -> SinkListing:
    [listing] = list_sinks(box.connection)
    return listing


def test_the_state_and_counts_of_a_sink_are_shown(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"), retry_seconds=3600)
    box.add_port("Europe", "exists(Orders.Region)")
    publish(box, b"a", b"b")
    one = shown(box)
    assert (one.sink, one.state, one.waiting) == ("Lake", "not running", 2)
    assert (one.batches, one.written, one.rate) == (None, None, None)
    assert one.guarantee == "exactly once: each batch is a directory that appears whole"
    with connect(box.url, user=box.host().role_name) as process:
        lock_sinks_served(process, box.host().host_id)
        register_process(process, box.host().host_id, ProcessKind.PIPELINE)
        assert shown(box).state == "waiting"
        seen = []
        drain = make_drain(box, tmp_path, lambda step: seen.append(shown(box).state))
        assert drain_batch(drain, box) == 2
        assert set(seen) == {"writing"}
        one = shown(box)
        assert (one.state, one.waiting, one.batches, one.written, one.reason) == ("waiting", 0, 1, 2, None)
        assert one.rate is not None
        assert one.rate > 0, "the rate of the last batch"
        assert one.last_batch_at is not None
        publish(box, b"c")
        assert drain_batch(make_drain(box, tmp_path, fails), box) == 0
        one = shown(box)
        assert (one.state, one.reason) == ("failing", "The batch could not be written. the disk is gone")
        assert one.retrying == 1
    # The session ends a moment after its connection.
    wait_until(lambda: shown(box).state == "not running", what="the end of the process")
    one = shown(box)
    assert (one.state, one.reason, one.written, one.rate) == ("not running", None, None, None)
    assert one.last_batch_at is not None


def fails(step: str) -> None:
    raise RuntimeError("the disk is gone")


def test_the_reason_of_an_interrupted_batch_is_shown(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"))
    publish(box, b"a")
    with connect(box.url) as process:
        lock_sinks_served(process, box.host().host_id)
        register_process(process, box.host().host_id, ProcessKind.PIPELINE)
        box.set_port_states(ServiceState.STOPPED)
        assert shown(box).state == "stopped"
        drain = make_drain(box, tmp_path)
        drain._writer.has_died = lambda: True  # type: ignore[method-assign]
        drain._writer.write = lambda *_: fails("")  # type: ignore[method-assign]
        with pytest.raises(RuntimeError):
            drain_batch(drain, box)
        assert (shown(box).state, shown(box).reason) == ("failing", "the disk is gone")


def test_a_restarted_process_does_not_show_what_the_one_before_has_written(box: Box, tmp_path: Path) -> None:
    add_sink(box, SparkSink("parquet", "lake"))
    publish(box, b"a")
    with connect(box.url) as process:
        lock_sinks_served(process, box.host().host_id)
        drain_batch(make_drain(box, tmp_path), box)  # this process is not registered: it stands for one that has ended
        one = shown(box)
        assert (one.state, one.batches, one.written, one.rate) == ("waiting", 0, 0, 0.0)
        assert one.last_batch_at is not None


def test_a_host_reports_only_its_own_sinks(box: Box) -> None:
    add_sink(box, SparkSink("parquet", "lake"))
    other = box.add_host("Other")
    with connect(box.url, user=other.role_name) as connection:
        SinkReport(read_port_id(box)).store_writing(connection)
        with pytest.raises(NotAllowed):
            Contents(connection).delete_all("running sinks")
    assert box.count("running sinks") == 0
    with connect(box.url, user=box.host().role_name) as connection:
        SinkReport(read_port_id(box)).store_failure(connection, "a \0 in it")
    assert [sink.reason for sink in box.running_sinks()] == ["a \\0 in it"]


def test_only_sinks_have_a_guarantee(box: Box) -> None:
    add_sink(box, SparkTable("jdbc:derby:x", "orders"))
    box.add_port("Europe", "exists(Orders.Region)")
    ports = {port.name: port for port in read_send_ports(box.connection)}
    assert get_guarantee(ports["Lake"]) == "exactly once: rows are merged by message_id"
    assert get_guarantee(ports["Europe"]) == ""


def test_columns_are_described() -> None:
    stored = SparkSink("parquet", "lake", columns={"region": Region}).model_dump(mode="json")
    assert describe_value(stored["columns"]) == "region (Orders.Region, str)"
