"""An orchestration that is removed with instances: what becomes of them is decided with --backlog."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.application import load
from postroom.errors import DefinitionRefused
from postroom.messagebox.maintenance.check import check
from postroom.operations.deployment.apply import apply, plan, plan_removal, remove
from postroom.operations.deployment.backlog import Backlog, apply_backlog_decisions
from postroom.operations.deployment.taken_changes import wait_until_taken
from postroom.operations.orchestrations import states
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.orchestrations import COLLECT, apply_orchestrations, is_empty, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

CONVOY = """
@app.orchestration(activate=Kind == "order", convoy=[Key], version=2, host="{host}")
async def count(order: Message) -> None:
    texts = [order.data] + [(await orchestrations.receive()).data for _ in range(2)]
    await orchestrations.send(Message.of(b" ".join(texts)), to="Out")
"""


def test_an_application_is_removed_with_waiting_instances_that_are_kept(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORS-04: they wait, with their messages, until the application declares the orchestration again."""
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="the waiting instance")
    with pytest.raises(DefinitionRefused, match=r"it still has 1 instance \(1 waiting\)"):
        remove(box.connection, "tests", home=tmp_path)
    planned = plan_removal(box.connection, "tests", home=tmp_path, backlog=Backlog.KEEP)
    assert "1 instance (1 waiting) stays" in {step.note for step in planned.changes}
    remove(box.connection, "tests", home=tmp_path, backlog=Backlog.KEEP)
    assert apply_backlog_decisions(box.connection, "tests") == []
    assert states.list_orchestrations(box.connection) == []
    wait_until_taken(box.connection, ["Default"])
    publish(box, "reply", "1")
    assert box.count("waiting orchestrations") == 1
    assert check(box.connection) == []
    planned = apply_orchestrations(box, tmp_path, COLLECT)
    assert any("gets back 1 instance (1 waiting)" in step.note for step in planned.changes)
    publish(box, "reply", "2")
    wait_until(lambda: sent(recorder) == [b"1 2", b"ask"] and is_empty(box), what="the end of the instance")
    assert check(box.connection) == []


def test_an_application_is_removed_and_its_instances_are_terminated(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    host = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="the waiting instance")
    wait_until(lambda: sent(recorder) == [b"ask"] and box.count("queued") == 0, what="its message")
    host.stop()
    publish(box, "order", "")
    remove(box.connection, "tests", home=tmp_path, backlog=Backlog.TERMINATE)
    [done] = apply_backlog_decisions(box.connection, "tests")
    assert str(done) == "2 instances of collect terminated."
    assert is_empty(box)
    assert box.count("instance subscriptions") == box.count("journal entries") == 0
    assert check(box.connection) == []


def test_messages_that_have_not_activated_an_instance_are_rerouted_and_those_that_have_started_stay(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """The new subscribers of these messages get them."""
    apply_orchestrations(box, tmp_path, COLLECT)
    host = start_host(recorder)
    publish(box, "order", "started")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="the waiting instance")
    wait_until(lambda: sent(recorder) == [b"ask"] and box.count("queued") == 0, what="its message")
    host.stop()
    publish(box, "order", "queued")
    port = 'app.send_port("Orders", adapters.Null(), filter=Kind == "order", host="Default")\n'
    planned = apply_orchestrations(box, tmp_path, port, backlog=Backlog.REROUTE)
    assert any("what has started stays, the messages of the others" in step.note for step in planned.changes)
    [done] = apply_backlog_decisions(box.connection, "tests")
    assert (done.count, done.active) == (1, 0)
    start_host(recorder)
    wait_until(lambda: sent(recorder) == [b"ask", b"queued"], what="the rerouted message")
    assert box.count("waiting orchestrations") == 1
    assert check(box.connection) == []


def test_a_removed_version_keeps_its_convoys_until_it_is_declared_again(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-20: later messages join the instance that was kept. It cannot move to another host."""
    apply_orchestrations(box, tmp_path, CONVOY.format(host="Default"))
    start_host(recorder)
    publish(box, "order", "1")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="the waiting instance")
    apply_orchestrations(box, tmp_path, "", backlog=Backlog.KEEP)
    [note] = plan(box.connection, load(tmp_path / "app.py"), home=tmp_path).notes
    assert note == (
        "The orchestration 'count version 2' was removed before and still has 1 instance (1 waiting). Continue with: "
        "postroom instance list --removed"
    )
    with pytest.raises(DefinitionRefused, match="gets back instances that were kept on host Default, and cannot move"):
        apply_orchestrations(box, tmp_path, 'app.host("Other")\n' + CONVOY.format(host="Other"))
    apply_orchestrations(box, tmp_path, CONVOY.format(host="Default"))
    wait_until_taken(box.connection, ["Default"])
    publish(box, "order", "2", "3")
    wait_until(lambda: sent(recorder) == [b"1 2 3"] and is_empty(box), what="one instance with all messages")
    assert apply(box.connection, load(tmp_path / "app.py"), home=tmp_path).changes == ()
