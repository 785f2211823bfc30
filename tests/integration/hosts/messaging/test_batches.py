"""Adapters that take batches get up to 20 messages of a port together (DEQ-19, SND-07, 08)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from postroom import BackupTransport, Retry, Schedule, adapters
from postroom.adapters import Attempt
from postroom.adapters.contract import Outgoing
from postroom.errors import DeliveryFailure
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.instances import InstanceQuery
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.system_properties import BTS
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support import changes
from tests.support.box import Box, Region
from tests.support.recording_adapter import RecordingAdapter, fail_always
from tests.support.waiting import wait_until

FILE = adapters.File("out").model_dump(mode="json")


def publish(box: Box, count: int, region: str = "EU") -> None:
    box.agent().publish([Message.of(str(number).encode(), promoted={Region: region}) for number in range(count)])


def test_the_messages_of_a_port_are_sent_in_batches(box: Box, start_host: StartHost) -> None:
    """LRG-09."""
    box.add_port("Europe", "Orders.Region == 'EU'", adapter=FILE)
    publish(box, 200)
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    wait_until(lambda: instance.counts["completed"] == 200)
    assert sorted(map(int, recorder.bodies)) == list(range(200))
    assert 1 < max(recorder.batches) <= 20
    run_all_jobs_once(box.connection)
    assert box.count("messages") == 0
    assert check(box.connection) == []


def test_the_messages_of_a_batch_are_retried_and_suspended_alone(box: Box, start_host: StartHost) -> None:
    """SND-07: a success in a batch with failures loses no attempt."""
    box.add_port("Europe", "Orders.Region == 'EU'", adapter=FILE, retry_count=2, retry_seconds=0)
    publish(box, 60)

    def fail_odd_numbers(message: Message, attempt: Attempt) -> None:
        assert message.body is not None
        if int(message.body.data) % 2:
            fail_always(message, attempt)

    recorder = RecordingAdapter(fail_odd_numbers)
    instance = start_host(recorder)
    wait_until(lambda: instance.counts["suspended"] == 30)
    assert recorder.batches
    assert instance.counts["completed"] == 30
    assert {sent.attempt.number for sent in recorder.sent} == {1}
    assert len(recorder.attempts) == 30 + 3 * 30
    assert {row.attempt for row in box.suspended_rows()} == {2}


def test_an_exception_is_a_failed_attempt_of_every_message_of_the_batch(box: Box, start_host: StartHost) -> None:
    """SND-08."""
    box.add_port("Europe", "Orders.Region == 'EU'", adapter=FILE, retry_count=1, retry_seconds=0)
    publish(box, 40)

    class FailsOnce(RecordingAdapter):
        def send_batch(self, batch: Sequence[Outgoing]) -> list[Exception | None]:
            if any(attempt.number == 1 for _, attempt in batch):
                self.batches.append(len(batch))
                raise DeliveryFailure("The receiver is down.")
            return super().send_batch(batch)

        def send(self, message: Message, attempt: Attempt) -> None:
            if attempt.number == 1:
                raise DeliveryFailure("The receiver is down.")
            super().send(message, attempt)

    recorder = FailsOnce()
    instance = start_host(recorder)
    wait_until(lambda: instance.counts["completed"] == 40)
    assert instance.counts["retried"] == 40
    assert {sent.attempt.number for sent in recorder.sent} == {2}
    assert recorder.batches


def test_a_batch_has_the_messages_of_one_port(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", adapter=FILE)
    box.add_port("Audit", "Orders.Region != 'US'", adapter=FILE)
    publish(box, 50)
    ports: list[set[str]] = []

    class RecordsPorts(RecordingAdapter):
        def send_batch(self, batch: Sequence[Outgoing]) -> list[Exception | None]:
            ports.append({str(message.context[BTS.SPName]) for message, _ in batch})
            return super().send_batch(batch)

    recorder = RecordsPorts()
    instance = start_host(recorder)
    wait_until(lambda: instance.counts["completed"] == 100)
    assert len([sent for sent in recorder.sent if sent.port == "Europe"]) == 50
    assert all(len(names) == 1 for names in ports)


def test_a_batch_outside_the_service_window_is_scheduled(box: Box, start_host: StartHost) -> None:
    box.add_port("Europe", "Orders.Region == 'EU'", adapter=FILE, service_window=Schedule(start="2999-01-01"))
    publish(box, 40)
    recorder = RecordingAdapter()
    instance = start_host(recorder)
    wait_until(lambda: instance.counts["postponed"] == 40)
    assert recorder.batches == []


def test_the_messages_of_a_batch_go_to_the_backup_transport(box: Box, start_host: StartHost) -> None:
    box.add_port(
        "Europe",
        "Orders.Region == 'EU'",
        adapter=FILE,
        retry_count=0,
        backup=BackupTransport(adapters.Null(), retry=Retry(count=0)),
    )
    publish(box, 40)

    def fail_first(message: Message, attempt: Attempt) -> None:
        if attempt.number == 1:
            fail_always(message, attempt)

    recorder = RecordingAdapter(fail_first)
    instance = start_host(recorder)
    wait_until(lambda: instance.counts["completed"] == 40)
    assert {sent.attempt.number for sent in recorder.sent} == {2}


@pytest.mark.parametrize("mode", ["create", "overwrite"])
def test_a_folder_that_vanishes_is_created_again_and_no_file_is_lost(box: Box, tmp_path: Path, mode: str) -> None:
    out, moved = tmp_path / "out", tmp_path / "moved"
    definition = adapters.File("out", mode=mode)  # type: ignore[arg-type]
    box.add_port(
        "Europe", "Orders.Region == 'EU'", adapter=definition.model_dump(mode="json"), retry_count=9, retry_seconds=0
    )
    with HostInstance(box.url, "Default", tmp_path, as_role=True, settings=SETTINGS) as instance:
        publish(box, 100)
        wait_until(lambda: instance.counts["completed"] == 100)
        out.rename(moved)
        publish(box, 100)
        wait_until(lambda: instance.counts["completed"] == 200)
        assert len(list(out.iterdir())) == 100
        shutil.rmtree(out)
        out.write_bytes(b"in the way")
        publish(box, 1)
        wait_until(lambda: instance.counts["suspended"] == 1)
        assert box.suspended() == [("DELIVERY", True)]
        assert "Remove the file that has the name of the folder" in box.read_error()
        out.unlink()
        changes.resume_all(box.connection, InstanceQuery())
        wait_until(lambda: instance.counts["completed"] == 201)
    assert len(list(moved.iterdir())) == 100
    assert len(list(out.iterdir())) == 1
