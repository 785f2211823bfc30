"""Operators start, stop, suspend, resume and terminate orchestrations and their instances (ORS-02, 03, INS-05)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from postroom.errors import StateError
from postroom.messagebox.instances import InstanceQuery, InstanceState, get_instance, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.operations.deployment.taken_changes import wait_until_taken
from postroom.operations.instances.changes import resume_with_body
from postroom.operations.orchestrations import states as orchestration_states
from postroom.operations.ports import send_ports
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.changes import resume, suspend, terminate
from tests.support.orchestrations import COLLECT, apply_orchestrations, is_empty, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until


def test_an_exception_suspends_the_instance_and_a_resume_continues_it(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    code = """
        @app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
        async def divide(order: Message) -> None:
            replies = Replies.of(order)
            await orchestrations.send(Message.of(b"asked"), to="Out")
            reply = await replies.receive()
            await orchestrations.send(Message.of(b"%d" % (10 // int(reply.data))), to="Out")
        """
    apply_orchestrations(box, tmp_path, code)
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"asked"], what="the waiting instance")
    publish(box, "reply", "0")
    wait_until(lambda: box.count("suspended orchestrations") == 1, what="suspended")
    instance = get_instance(box.connection, box.orchestration_instances()[0].instance_id)
    assert (instance.state, instance.error_code) == (InstanceState.SUSPENDED, "ORCHESTRATION")
    assert "ZeroDivisionError" in str(instance.error_description)
    assert "line 20, in divide" in str(instance.error_description)
    with pytest.raises(StateError, match="it is an orchestration that has started"):
        resume_with_body(box.connection, instance.instance_id, b"2")
    apply_orchestrations(box, tmp_path, code.replace("10 //", "10 + 0 *"))
    wait_until_taken(box.connection, ["Default"])
    resume(box.connection, instance.instance_id)
    wait_until(lambda: sent(recorder) == [b"10", b"asked"], what="the corrected answer")
    wait_until(lambda: is_empty(box), what="the end of the instance")
    assert check(box.connection) == []


def test_a_stopped_orchestration_is_not_activated_and_its_instances_continue(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORS-03: the start activates it with the messages that came in the meantime."""
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    publish(box, "order", "", key="a")
    wait_until(lambda: sent(recorder) == [b"ask"], what="a waiting instance")

    def count_waiting() -> tuple[int, int, int]:
        [listed] = orchestration_states.list_orchestrations(box.connection)
        return listed.instances, listed.waiting_instances, listed.queued_messages

    wait_until(lambda: count_waiting() == (1, 1, 0), what="the waiting instance in the listing")
    orchestration_states.stop(box.connection, "collect")
    publish(box, "order", "", key="b")
    assert box.suspended() == [("PORT_STOPPED", True)]
    publish(box, "reply", "1", "2", key="a")
    wait_until(lambda: sent(recorder) == [b"1 2", b"ask"], what="the end of the running instance")
    assert orchestration_states.start(box.connection, "collect").resumed == 1
    wait_until(lambda: sent(recorder) == [b"1 2", b"ask", b"ask"], what="the activation of the other one")


def test_an_orchestration_learns_that_its_port_was_unenlisted_and_not_that_it_is_stopped(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORS-02: it starts with stopped ports, and continues when one of them is unenlisted."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        from postroom.errors import RoutingFailure

        app.send_port("Unenlisted", adapters.Null(), host="Default")
        app.send_port("Stopped", adapters.Null(), state="stopped", host="Default")

        @app.orchestration(activate=Kind == "order", host="Default")
        async def send_to_each(order: Message) -> None:
            await orchestrations.send(Message.of(b"suspended"), to="Stopped")
            with suppress(RoutingFailure):
                await orchestrations.send(Message.of(b"for nobody"), to="Unenlisted")
                await orchestrations.send(Message.of(b"not reached"), to="Out")
            await orchestrations.send(Message.of(b"handled"), to="Out")
        """,
    )
    send_ports.unenlist(box.connection, "Unenlisted")
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"handled"], what="the end of the instance")
    assert ("PORT_STOPPED", True) in box.suspended()


def test_an_operator_suspends_resumes_and_terminates_a_waiting_instance(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-34, 37: it is dehydrated as soon as it waits. INS-07: the message that comes while it is suspended waits.
    INS-04: received messages stay until the end of the instance."""
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("waiting orchestrations") == 1)
    [instance] = list_instances(box.connection, InstanceQuery(port="collect"))
    assert (instance.state, instance.service) == (InstanceState.DEHYDRATED, "collect")
    suspend(box.connection, instance.instance_id)
    publish(box, "reply", "1")
    assert get_instance(box.connection, instance.instance_id).state is InstanceState.SUSPENDED
    resume(box.connection, instance.instance_id)
    wait_until(lambda: box.count("journal entries") == 2, what="the first reply received")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="released")
    run_all_jobs_once(box.connection)
    assert [(one.is_received, one.is_stored) for one in box.orchestration_messages()] == [(True, True)] * 2
    terminate(box.connection, instance.instance_id)
    wait_until(lambda: is_empty(box), what="the end of the instance")
    assert box.count("journal entries") == box.count("orchestration messages") == 0
    assert box.count("instance subscriptions") == 0
    assert check(box.connection) == []


@pytest.mark.parametrize("operation", [suspend, terminate])
def test_an_operator_suspends_or_terminates_an_instance_that_works_without_a_pause(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, operation: Callable[..., bool]
) -> None:
    """INS-05: the operation is pending, and the instance stops at its next persistence point."""
    apply_orchestrations(
        box,
        tmp_path,
        f"""
        from pathlib import Path
        import time

        def work(number: int) -> None:
            (Path({str(tmp_path)!r}) / f"step{{number}}").touch()
            while number == 0 and not (Path({str(tmp_path)!r}) / "go").exists():
                time.sleep(0.01)

        @app.orchestration(activate=Kind == "order", host="Default")
        async def run(order: Message) -> None:
            for number in range(3):
                await orchestrations.step(work, number)
            await orchestrations.send(Message.of(b"done"), to="Out")
        """,
    )
    host = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: (tmp_path / "step0").exists(), what="the first step")
    instance_id = box.orchestration_instances()[0].instance_id
    assert operation(box.connection, instance_id) is False
    (tmp_path / "go").touch()
    wait_until(lambda: host.orchestration_counts["discarded"] == 1, what="the end of its work")
    assert [(one.is_claimed, one.journal_length) for one in box.orchestration_instances()] == [(False, 2)]
    assert not (tmp_path / "step1").exists()
    run_all_jobs_once(box.connection)
    if operation is terminate:
        assert is_empty(box)
        return
    assert get_instance(box.connection, instance_id).state is InstanceState.SUSPENDED
    resume(box.connection, instance_id)
    wait_until(lambda: sent(recorder) == [b"done"], what="the end of the instance")


@pytest.mark.parametrize("operation", [suspend, terminate])
def test_an_instance_that_suspends_itself_while_an_operation_is_pending_keeps_its_reason(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, operation: Callable[..., bool]
) -> None:
    """Otherwise the operator who resumes it does not know what is to be checked first."""
    apply_orchestrations(
        box,
        tmp_path,
        f"""
        from pathlib import Path
        import time

        def work() -> None:
            Path({str(tmp_path / "started")!r}).touch()
            while not Path({str(tmp_path / "go")!r}).exists():
                time.sleep(0.01)

        @app.orchestration(activate=Kind == "order", host="Default")
        async def run(order: Message) -> None:
            await orchestrations.step(work)
            await orchestrations.suspend("Look at the price.")
            await orchestrations.send(Message.of(b"done"), to="Out")
        """,
    )
    host = start_host(recorder)
    publish(box, "order", "")
    wait_until((tmp_path / "started").exists, what="the step")
    instance_id = box.orchestration_instances()[0].instance_id
    assert operation(box.connection, instance_id) is False
    (tmp_path / "go").touch()
    wait_until(lambda: host.orchestration_counts.total() == 1, what="the end of its work")
    run_all_jobs_once(box.connection)
    assert box.count("operation instances") == 0
    if operation is terminate:
        assert is_empty(box)
        return
    instance = get_instance(box.connection, instance_id)
    assert (instance.state, instance.error_code) == (InstanceState.SUSPENDED, "SUSPENDED_ITSELF")
    assert instance.error_description == "Look at the price.\nAn operator has also changed it."
    assert sent(recorder) == []
    resume(box.connection, instance_id)
    wait_until(lambda: sent(recorder) == [b"done"], what="the end of the instance")
    assert check(box.connection) == []
