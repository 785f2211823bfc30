"""A host polls the receive adapters of its locations, and publishes what they find."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from postroom.adapters.contract import Committed, Incoming, ReceiveAdapter
from postroom.agent.poison_messages import MAX_ATTEMPTS
from postroom.agent.routing.table import RoutingTable
from postroom.message import Bytes
from postroom.messagebox.connection import connect
from postroom.operations.ports.receive_locations import disable, enable, list_locations
from postroom.receiving.polled_location import PolledLocation
from tests.integration.hosts.conftest import StartHost
from tests.integration.receiving import interrupted_poller
from tests.integration.receiving.interrupted_poller import POISON
from tests.support.box import Box
from tests.support.interrupted_process import run_until_killed
from tests.support.outbox import AFTER, Outbox, add_polled_location, declare_receive
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

ORDER = b'{"region": "EU", "total": 12.5}'


@pytest.fixture
def outbox(box: Box) -> Iterator[Outbox]:
    outbox = Outbox(box.url)
    yield outbox
    outbox.connection.close()


def read_state(box: Box, name: str = "rows") -> tuple[str, str | None]:
    [listed] = [listed for listed in list_locations(box.connection) if listed.location == name]
    return listed.state, listed.reason


def test_a_row_is_received_published_and_removed_without_spark(box: Box, outbox: Outbox, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    location = add_polled_location(box, outbox.definition)
    assert not location.is_published_on_spark
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    outbox.put(ORDER)
    wait_until(lambda: recorder.sent)
    wait_until(lambda: outbox.count() == 0)
    [listed] = list_locations(box.connection)
    assert (listed.state, listed.waiting) == ("receiving", 0)
    metrics = {metric.name: metric for metric in instance.collect_metrics()}
    assert metrics["postroom_received"].values["Default", "rows", "published"] == 1
    assert metrics["postroom_service_state"].values["Default", "location", "rows", "receiving"] == 1.0
    outbox.put(b"no order")
    wait_until(lambda: box.suspended())
    assert box.suspended() == [("PIPELINE", True)]
    wait_until(lambda: outbox.count() == 0)


def test_a_disabled_location_leaves_its_rows_until_it_is_enabled(
    box: Box, outbox: Outbox, start_host: StartHost
) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    add_polled_location(box, outbox.definition)
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    wait_until(lambda: read_state(box)[0] == "receiving")
    disable(box.connection, "rows")
    wait_until(lambda: read_state(box)[0] == "disabled")
    assert not instance.polled.running
    outbox.put(ORDER)
    assert outbox.count() == 1
    enable(box.connection, "rows")
    wait_until(lambda: recorder.sent)


def test_a_source_that_is_down_is_shown_and_received_from_when_it_is_back(
    box: Box, outbox: Outbox, start_host: StartHost
) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    add_polled_location(box, outbox.definition)
    outbox.put(ORDER)
    outbox.break_down()
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    wait_until(lambda: read_state(box)[0] == "failing")
    assert 'relation "public.outbox" does not exist' in (read_state(box)[1] or "")
    assert any("public.outbox" in problem for problem in instance.find_problems())
    outbox.repair()
    wait_until(lambda: recorder.sent)
    wait_until(lambda: read_state(box) == ("receiving", None))
    assert instance.find_problems() == []


def test_an_adapter_that_is_not_installed_is_a_problem_and_stops_no_other_location(
    box: Box, outbox: Outbox, start_host: StartHost
) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    add_polled_location(box, outbox.definition)
    add_polled_location(box, outbox.definition, name="birds", kind="carrier_pigeon")
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    outbox.put(ORDER)
    wait_until(lambda: recorder.sent)
    [problem] = instance.find_problems()
    assert problem.startswith("birds: birds cannot be started:")
    assert "There is no adapter of the kind 'carrier_pigeon'" in problem


def test_another_host_takes_over_after_a_kill_between_the_commit_and_the_clean_up(
    box: Box, outbox: Outbox, tmp_path: Path, start_host: StartHost
) -> None:
    """Nothing is lost or published twice: the second host finds the receipt, and only deletes the row."""
    box.add_port("Europe", "Orders.Region == 'EU'", state="stopped")
    add_polled_location(box, declare_receive(box.url, after=f"{AFTER} AND pg_advisory_xact_lock(42) IS NOT NULL"))
    outbox.put(ORDER)
    outbox.connection.execute("SELECT pg_advisory_lock(42)")
    killed = subprocess.Popen(
        [sys.executable, "-m", "tests.support.blocked_host", box.url, "Default", str(tmp_path)], cwd=Path.cwd()
    )
    try:
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objid = 42 AND NOT granted"
        wait_until(
            lambda: box.one(
                f"{waiting} AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
            )
        )
        assert box.count("suspended") == 1
        instance = start_host(RecordingAdapter())
        wait_until(lambda: instance.polled.running)
    finally:
        killed.send_signal(signal.SIGKILL)
        killed.wait()
    outbox.connection.execute("SELECT pg_advisory_unlock(42)")
    wait_until(lambda: outbox.count() == 0)
    assert box.count("suspended") == 1


@dataclass(frozen=True)
class UnreadableBody:
    size: int = 5

    def chunks(self) -> Iterator[bytes]:
        raise OSError("the file is on a broken disk")
        yield b""


@dataclass
class ListedAdapter(ReceiveAdapter):
    """An adapter whose source is a list."""

    left: list[Incoming]
    released: list[str] = field(default_factory=list)

    def poll(self, limit: int) -> Sequence[Incoming]:
        return self.left[:limit]

    def clean_up(self, committed: Sequence[Committed]) -> None:
        for one in committed:
            self.left.remove(one.incoming)

    def release(self, batch: Sequence[Incoming]) -> None:
        self.released += [incoming.key for incoming in batch]


def test_an_interchange_that_cannot_be_read_stays_at_its_source_and_stops_no_other(
    box: Box, outbox: Outbox, tmp_path: Path
) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    location = add_polled_location(box, outbox.definition)
    polled = PolledLocation(location, connect=partial(connect, box.url), home=tmp_path, routing=RoutingTable())
    adapter = ListedAdapter(
        [
            Incoming(key="1", body=Bytes(ORDER)),
            Incoming(key="2", body=UnreadableBody()),
            Incoming(key="3", body=Bytes(ORDER)),
        ]
    )
    polled.adapter = adapter
    with pytest.raises(OSError, match="broken disk"):
        polled.step()
    assert [incoming.key for incoming in adapter.left] == adapter.released == ["2"]
    assert box.queued() == {"Europe": 2}
    assert read_state(box)[0] == "failing"
    polled.close()


def test_a_source_that_cannot_be_cleaned_up_is_polled_with_pauses(box: Box, outbox: Outbox, tmp_path: Path) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    polled = PolledLocation(
        add_polled_location(box, outbox.definition),
        connect=partial(connect, box.url),
        home=tmp_path,
        routing=RoutingTable(),
    )

    class KeepingAdapter(ListedAdapter):
        def clean_up(self, committed: Sequence[Committed]) -> None:
            pass

    polled.adapter = KeepingAdapter([Incoming(key="1", body=Bytes(ORDER))])
    assert polled.step() == 0.0
    assert polled.step() == polled.location.adapter.polling_interval
    assert box.queued() == {"Europe": 1}
    polled.close()


def test_a_row_that_kills_its_host_is_suspended_and_the_others_are_published(
    box: Box, outbox: Outbox, tmp_path: Path
) -> None:
    """ADR 0029."""
    box.add_port("Europe", "Orders.Region == 'EU'")
    location = add_polled_location(box, outbox.definition)
    for content in (ORDER, POISON, ORDER):
        outbox.put(content)
    role = box.host().role_name
    queued = []
    for _ in range(1 + MAX_ATTEMPTS):
        run_until_killed(interrupted_poller.main, box.url, role, location.name, str(tmp_path))
        queued.append(box.count("queued"))
    assert queued == [0, 1, 1]
    assert box.receive_attempts() == [MAX_ATTEMPTS]
    polled = PolledLocation(
        location, connect=partial(connect, box.url, user=role), home=tmp_path, routing=RoutingTable()
    )
    polled.step()
    polled.close()
    assert box.queued() == {"Europe": 2}
    assert box.suspended() == [("PIPELINE", True)]
    assert "The host process that processed it died at every attempt" in box.read_error()
    assert box.suspended_rows()[0].body == POISON
    assert (outbox.count(), box.count("receive attempts")) == (0, 0)


def test_an_interchange_that_fails_alone_is_no_attempt(box: Box, outbox: Outbox, tmp_path: Path) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'")
    location = add_polled_location(box, outbox.definition)
    box.add_running_location(location.location_id)
    polled = PolledLocation(location, connect=partial(connect, box.url), home=tmp_path, routing=RoutingTable())
    polled.adapter = ListedAdapter([Incoming(key="1", body=UnreadableBody()), Incoming(key="2", body=Bytes(ORDER))])
    for _ in range(MAX_ATTEMPTS + 1):
        with pytest.raises(OSError, match="broken disk"):
            polled.step()
    assert box.suspended() == []
    assert (box.queued(), box.count("receive attempts")) == ({"Europe": 1}, 0)
    polled.close()
