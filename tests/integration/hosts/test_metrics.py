"""The metrics and the readiness of a host instance."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from postroom import Throttling, adapters
from postroom.adapters import Attempt
from postroom.errors import DeliveryFailure
from postroom.hosts import configuration_watch
from postroom.hosts.host_instance import HostInstance, HostSettings
from postroom.message import Message
from postroom.messagebox.instances import InstanceState, count_instances_of_host
from postroom.messagebox.queues import QueueTask
from postroom.monitoring.logs import JsonFormatter
from postroom.monitoring.metrics import format_metrics
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import StartHost
from tests.integration.receiving.http.test_receive import send_request
from tests.support.box import Box, Region
from tests.support.host_settings import set_thresholds
from tests.support.inbox_location import add_inbox_location
from tests.support.recording_adapter import RecordingAdapter
from tests.support.simulated_load import set_load
from tests.support.waiting import wait_until


def read_metrics(instance: HostInstance) -> dict[tuple[str, ...], float]:
    """Return the samples of Postroom: the name, then the values of the labels in the order of their names."""
    text, _ = format_metrics(instance.collect_metrics(), "")
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text.decode())
        for sample in family.samples
        if sample.name.startswith("postroom_")
    }


def start(box: Box, tmp_path: Path) -> HostInstance:
    return HostInstance(box.url, "Default", tmp_path, as_role=True, settings=HostSettings(runs_jobs=False))


def test_deliveries_and_requests_are_counted(box: Box, tmp_path: Path) -> None:
    add_inbox_location(box, adapter=adapters.HttpReceive("/orders", port=0), name="web")
    with start(box, tmp_path) as instance:
        wait_until(lambda: instance.http.ports, what="an open port")
        assert send_request(instance.http)[0].status == 202
        assert send_request(instance.http, path="/other")[0].status == 404
        wait_until(
            lambda: read_metrics(instance).get(("postroom_http_requests_total", "Default", "", "404")) == 1,
            what="both requests in the metrics",
        )
        found = read_metrics(instance)
        assert found["postroom_http_requests_total", "Default", "web", "202"] == 1
        assert found["postroom_http_request_seconds_count", "Default", "web"] == 1
        assert found["postroom_http_request_seconds_sum", "Default", "web"] > 0
        assert found["postroom_http_requests_in_progress", "Default", "web"] == 0
        assert found["postroom_messages_in_progress", "Default"] == 0
        assert found["postroom_messagebox_up",] == 1
        assert found["postroom_throttle_severity", "publishing", "Default"] == 0
    assert read_metrics(instance) == {}


def test_the_instances_of_the_host_and_the_size_of_the_messagebox_are_measured(box: Box, tmp_path: Path) -> None:
    box.add_port("Stopped", "exists(Region)", state="stopped")
    box.agent().publish([Message.of(b"x", promoted={Region: "EU"})])
    with start(box, tmp_path) as instance:
        found = read_metrics(instance)
    assert found["postroom_instances", "Default", "suspended"] == 1
    assert found["postroom_oldest_instance_seconds", "Default", "suspended"] >= 0
    assert found["postroom_instances", "Default", "ready to run"] == 0
    assert found["postroom_state_references", "Default"] == 0
    sizes = {labels[1]: size for labels, size in found.items() if labels[0] == "postroom_messagebox_bytes"}
    assert sizes.keys() == {
        "configuration",
        "intake",
        "lookups",
        "messages",
        "orchestrations",
        "queues",
        "reference counts",
        "subscriptions",
        "tracking",
    }
    assert all(sizes.values())


def test_an_ordered_port_is_one_instance_with_many_messages_in_the_metrics(box: Box) -> None:
    box.add_port("Ordered", "exists(Region)", ordered=True)
    box.add_port("Unordered", "exists(Region)")
    box.agent().publish([Message.of(b"x", promoted={Region: "EU"}) for _ in range(3)])
    assert count_by_state(box)[InstanceState.READY_TO_RUN] == (1 + 3, 3 + 3)
    box.claim_row(next(row.seq for row in box.queued_rows() if row.task == QueueTask.DELIVER_IN_ORDER))
    counts = count_by_state(box)
    assert counts[InstanceState.ACTIVE] == (1, 1)
    assert counts[InstanceState.READY_TO_RUN] == (3, 2 + 3)


def count_by_state(box: Box) -> dict[InstanceState | None, tuple[int, int]]:
    """Return the numbers of instances and messages by state."""
    return {
        count.state: (count.instances, count.messages) for count in count_instances_of_host(box.connection, "Default")
    }


def test_the_attempts_of_polled_locations_are_measured_with_the_intake(box: Box) -> None:
    location = add_inbox_location(box)
    before = measure_tables(box)
    box.add_receive_attempts(location.location_id, 1_000)
    after = measure_tables(box)
    assert {content for content in before if after[content] != before[content]} == {"intake"}


def measure_tables(box: Box) -> dict[str, int]:
    return dict(box.connection.execute("SELECT content, bytes FROM measure_tables()").fetchall())


def test_messages_are_counted_by_outcome(box: Box, start_host: StartHost, caplog: pytest.LogCaptureFixture) -> None:
    def fail(message: Message, attempt: Attempt) -> None:
        if message.context[BTS.SPName] == "Broken":
            raise DeliveryFailure("No.")

    box.add_port("Works", "exists(Region)")
    box.add_port("Broken", "exists(Region)", retry_count=0)
    instance = start_host(RecordingAdapter(fail))
    box.agent().publish([Message.of(b"x", promoted={Region: "EU"}, written={BTS.InterchangeID: "4711"})])
    expected = {
        ("postroom_messages_total", "Default", "completed"): 1,
        ("postroom_messages_total", "Default", "suspended"): 1,
        ("postroom_delivery_seconds_count", "Default"): 2,
        ("postroom_queue_seconds_count", "Default"): 2,
        ("postroom_messages_in_progress", "Default"): 0,
    }
    wait_until(lambda: expected.items() <= read_metrics(instance).items(), what="both outcomes in the metrics")
    [(message_id, instance_id)] = [(row.message_id, row.instance_id) for row in box.suspended_rows()]
    wait_until(lambda: [one for one in caplog.records if "was suspended" in one.message], what="a line in the log")
    [record] = [one for one in caplog.records if "was suspended" in one.message]
    entry = json.loads(JsonFormatter().format(record))
    assert (entry["message_id"], entry["instance_id"]) == (str(message_id), str(instance_id))
    assert entry["interchange_id"] == "4711"
    assert entry["message"] == f"message {message_id} was suspended: DELIVERY"


def test_throttling_is_a_metric(box: Box, tmp_path: Path) -> None:
    set_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=40))
    set_load(box, queued=15)
    with start(box, tmp_path) as instance:
        found = read_metrics(instance)
        assert found["postroom_messagebox_queued_messages",] == 15
        assert found["postroom_throttle_severity", "publishing", "Default"] == pytest.approx(0.5)
        assert found["postroom_throttle_delay_seconds", "publishing", "Default"] == pytest.approx(20)
        assert found["postroom_throttle_state", "publishing", "Default"] == 6
        assert found["postroom_throttle_state", "delivery", "Default"] == 0


def test_an_instance_is_ready_while_it_has_its_lock(box: Box, tmp_path: Path) -> None:
    instance = start(box, tmp_path)
    assert instance.find_problems() == ["The host instance is not running."]
    with instance:
        wait_until(lambda: not instance.find_problems(), what="a ready instance")
    assert instance.find_problems() == ["The host instance is not running."]


def test_an_instance_whose_port_is_in_use_is_not_ready(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(configuration_watch, "_APPLY_SECONDS", 0.1)
    with start(box, tmp_path) as first:
        add_inbox_location(box, adapter=adapters.HttpReceive("/orders", port=0), name=f"web-{uuid.uuid4()}")
        wait_until(lambda: first.http.ports, what="an open port")
        [port] = first.http.ports
        add_inbox_location(box, adapter=adapters.HttpReceive("/taken", port=port), name="taken")
        problem = f"127.0.0.1:{port} cannot be started: "
        wait_until(lambda: problem in "".join(first.find_problems()), what="a problem")
