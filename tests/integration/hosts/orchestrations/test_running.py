"""Host instances run orchestrations: they are activated, wait for correlated messages, send, and end."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import DefinitionRefused, MessageBoxUnavailable
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.orchestrations import HostOrchestrations
from postroom.operations import orchestration_states
from postroom.operations.deployment.taken_changes import wait_until_taken
from postroom.operations.instances.changes import resume, suspend, terminate
from postroom.operations.instances.listing import InstanceQuery, InstanceState, get_instance, list_instances
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support.box import Box
from tests.support.orchestrations import apply_orchestrations, publish
from tests.support.recording_adapter import RecordingAdapter
from tests.support.two_way import AnsweringAdapter, make_two_way
from tests.support.waiting import wait_until

ECHO = """
@app.orchestration(activate=Kind == "order", host="Default")
async def echo(order: Message) -> None:
    await orchestrations.send(Message.of(b"echo " + order.data), to="Out")
"""

COLLECT = """
@app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
async def collect(order: Message) -> None:
    replies = Replies.of(order)
    await orchestrations.send(Message.of(b"ask"), to="Out")
    texts = [(await replies.receive()).data for _ in range(2)]
    await orchestrations.send(Message.of(b" ".join(texts)), to="Out")
"""


@pytest.fixture
def recorder() -> RecordingAdapter:
    return RecordingAdapter()


def sent(recorder: RecordingAdapter) -> list[bytes]:
    return sorted(one.body for one in recorder.sent)


def is_empty(box: Box) -> bool:
    return box.count("orchestration_instances") == 0 and box.count("instances") == 0


def test_a_message_activates_an_instance_that_sends_through_a_bound_port(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    start_host(recorder)
    publish(box, "order", "1", "2")
    wait_until(lambda: sent(recorder) == [b"echo 1", b"echo 2"], what="both messages sent")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert box.count("orchestration_journal") == box.count("orchestration_messages") == 0
    assert check(box.connection) == []


def test_correlated_messages_reach_the_waiting_instance(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    publish(box, "order", "", key="a")
    publish(box, "order", "", key="b")
    wait_until(lambda: sent(recorder) == [b"ask"] * 2, what="two waiting instances")
    wait_until(lambda: box.count("orchestration_instances WHERE claim_id IS NULL") == 2, what="both released")
    assert box.count("subscriptions WHERE instance_id IS NOT NULL AND removed_at IS NULL") == 2
    publish(box, "reply", "a1", key="a")
    publish(box, "reply", "b1", "b2", key="b")
    publish(box, "reply", "a2", key="a")
    wait_until(lambda: sent(recorder) == [b"a1 a2", b"ask", b"ask", b"b1 b2"], what="both answers")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


def test_a_timer_wakes_an_instance(box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
        async def wait(order: Message) -> None:
            try:
                async with asyncio.timeout(0.2):
                    await Replies.of(order).receive()
            except TimeoutError:
                await orchestrations.send(Message.of(b"too late"), to="Out")
        """,
    )
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"too late"], what="the timeout")
    wait_until(lambda: is_empty(box), what="the end of the instance")


def test_a_convoy_collects_its_messages_and_leaves_zombies(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-21: the messages were published while no host ran. Each key is one instance, in order."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", convoy=[Key], host="Default")
        async def collect(first: Message) -> None:
            texts = [first.data]
            while len(texts) < 3:
                texts.append((await orchestrations.receive()).data)
            await orchestrations.send(Message.of(b"".join(texts)), to="Out")
        """,
    )
    publish(box, "order", "1", "2", key="K")
    publish(box, "order", "a", "b", "c", key="L")
    publish(box, "order", "3", "4", key="K")
    start_host(recorder)
    wait_until(lambda: sent(recorder) == [b"123", b"abc"], what="both convoys")
    wait_until(lambda: box.count("orchestration_instances") == 0, what="the end of the instances")
    assert box.suspended() == [("0xC0C01B4C", False)]
    assert check(box.connection) == []
    publish(box, "order", "x", "y", "z", key="K")
    wait_until(lambda: sent(recorder) == [b"123", b"abc", b"xyz"], what="a new instance with the same key")


COUNT = """
@app.orchestration(activate=(Kind == "order") | (Kind == "payment"), convoy=[Key], ordered=True, host="Default")
async def count(first: Message) -> None:
    texts = [first.data, *[(await orchestrations.receive()).data for _ in range(3)]]
    await orchestrations.send(Message.of(b"".join(texts)), to="Out")
"""


def test_messages_of_several_kinds_join_one_instance_whichever_comes_first(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """A parallel convoy (ORC-23)."""
    apply_orchestrations(box, tmp_path, COUNT)
    start_host(recorder)
    publish(box, "payment", "1", key="a")
    publish(box, "order", "2", key="b")
    publish(box, "order", "3", "4", key="a")
    publish(box, "payment", "5", "6", key="b")
    publish(box, "order", "7", key="b")
    publish(box, "payment", "8", key="a")
    wait_until(lambda: sent(recorder) == [b"1348", b"2567"], what="both instances")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


def test_a_convoy_keeps_its_instance_when_other_code_or_a_new_version_is_applied(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COUNT)
    publish(box, "order", "1")
    apply_orchestrations(box, tmp_path, COUNT + "# another comment")
    publish(box, "order", "2")
    newer = COUNT.replace("def count", "def count_again").replace("activate=", 'name="count", version=2, activate=')
    apply_orchestrations(box, tmp_path, COUNT + newer.replace('b"".join', 'b"+".join'))
    publish(box, "order", "3")
    start_host(recorder)
    publish(box, "order", "4")
    wait_until(lambda: sent(recorder) == [b"1234"], what="the instance of the old version")
    publish(box, "order", "1", "2", "3", "4")
    wait_until(lambda: sent(recorder) == [b"1+2+3+4", b"1234"], what="an instance of the new version")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


def test_a_convoy_with_instances_cannot_get_other_properties(box: Box, tmp_path: Path) -> None:
    apply_orchestrations(box, tmp_path, COUNT)
    publish(box, "order", "1")
    with pytest.raises(DefinitionRefused, match="which would get no more messages"):
        apply_orchestrations(box, tmp_path, COUNT.replace("[Key]", "[Kind]"))
    newer = COUNT.replace("def count", "def other").replace("activate=", 'name="count", version=2, activate=')
    plan = apply_orchestrations(box, tmp_path, COUNT + newer.replace("[Key]", "[Kind]"))
    [note] = [step.note for step in plan.steps if step.name == "count version 2"]
    assert "one instance of version 1 would get no more messages of the convoy" in note


def test_the_subscriptions_of_an_ordered_orchestration_are_ordered(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-28. An activation that starts an instance for each message needs no order."""
    apply_orchestrations(box, tmp_path, COUNT + COLLECT.replace("activate=", "ordered=True, activate="))
    start_host(recorder)
    publish(box, "order", "1")
    wait_until(lambda: sent(recorder) == [b"ask"], what="a waiting instance")
    found = "SELECT service_name, instance_id IS NOT NULL, ordered FROM subscriptions WHERE service_class = 1"
    rows = box.connection.execute(f"{found} AND removed_at IS NULL ORDER BY 1, 2").fetchall()
    assert rows == [("collect", False, False), ("collect", True, True), ("count", False, True)]


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
    wait_until(lambda: box.count("orchestration_instances WHERE suspended_at IS NOT NULL") == 1, what="suspended")
    instance = get_instance(box.connection, box.one("SELECT instance_id FROM orchestration_instances"))
    assert (instance.state, instance.error_code) == (InstanceState.SUSPENDED, "ORCHESTRATION")
    assert "ZeroDivisionError" in str(instance.error_description)
    assert "line 20, in divide" in str(instance.error_description)
    apply_orchestrations(box, tmp_path, code.replace("10 //", "10 + 0 *"))
    resume(box.connection, instance.instance_id)
    wait_until(lambda: sent(recorder) == [b"10", b"asked"], what="the corrected answer")
    wait_until(lambda: is_empty(box), what="the end of the instance")
    assert check(box.connection) == []


def test_an_instance_is_not_claimed_before_the_earlier_message_of_an_interrupted_claim(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    host = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"ask"], what="the waiting instance")
    host.stop()
    publish(box, "reply", "1", "2")
    procedures, services = HostOrchestrations("Default"), [box.one("SELECT id FROM orchestrations")]

    def claim() -> int:
        claim_id = uuid.uuid4()
        return len(procedures.claim(box.connection, claim_id=claim_id, host_instance=1, limit=9, services=services))

    with connect(box.url) as other, other.transaction():
        other.execute("SELECT FROM default_q ORDER BY seq LIMIT 1 FOR UPDATE")
        assert claim() == 0
        assert box.count("orchestration_messages WHERE consumed_in IS NULL") == 1
    assert claim() == 1
    assert box.count("orchestration_messages WHERE consumed_in IS NULL") == 2


def test_changed_code_that_does_not_fit_suspends_the_instance_with_the_place(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    first = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("orchestration_instances WHERE journal_length = 1 AND claim_id IS NULL") == 1)
    first.stop()
    apply_orchestrations(box, tmp_path, COLLECT.replace('(b"ask"), to="Out"', '(b"ask")'))
    start_host(recorder)
    publish(box, "reply", "1")
    wait_until(lambda: box.count("orchestration_instances WHERE suspended_at IS NOT NULL") == 1, what="suspended")
    code, description = box.connection.execute(
        "SELECT error_code, error_description FROM orchestration_instances"
    ).fetchone() or ("", "")
    assert code == "JOURNAL"
    assert "The journal has 'send Out' (app.py:" in description
    apply_orchestrations(box, tmp_path, COLLECT)
    publish(box, "reply", "2")
    resume(box.connection, box.one("SELECT instance_id FROM orchestration_instances"))
    wait_until(lambda: sent(recorder) == [b"1 2", b"ask"], what="the instance continues with the old code")


def test_a_file_that_was_edited_is_not_run_before_it_is_applied(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    first = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"ask"], what="a waiting instance")
    file, edited = tmp_path / "app.py", (tmp_path / "app.py").read_text().replace('b" ".join', 'b"+".join')
    applied = file.read_text()
    file.write_text(edited)
    publish(box, "reply", "1")
    wait_until(lambda: box.count("orchestration_journal") == 2, what="the process that runs goes on")
    first.stop()
    second = start_host(recorder)
    advice = f"Run 'postroom apply {file}'"
    wait_until(lambda: any(advice in problem for problem in second.find_problems()), what="the edit detected")
    publish(box, "order", "", key="new")
    publish(box, "reply", "2")
    file.write_text(applied)
    wait_until(lambda: sent(recorder) == [b"1 2", b"ask", b"ask"], what="the end with the applied code")
    wait_until(lambda: second.find_problems() == [], what="no problem")


def test_a_waiting_instance_in_memory_continues_with_the_code_that_was_applied_last(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    host = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"ask"], what="a waiting instance")
    apply_orchestrations(box, tmp_path, COLLECT.replace('b" ".join', 'b"+".join'))
    wait_until_taken(box.connection, ["Default"])
    publish(box, "reply", "1", "2")
    wait_until(lambda: sent(recorder) == [b"1+2", b"ask"], what="the end with the changed code")
    assert host.find_problems() == []


def test_versions_are_declared_side_by_side(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    publish(box, "order", "", key="old")
    wait_until(lambda: sent(recorder) == [b"ask"], what="an instance of version 1")
    new = ECHO.replace("def echo", "def changed").replace("activate=", 'name="collect", version=2, activate=')
    with pytest.raises(DefinitionRefused, match="has one instance"):
        apply_orchestrations(box, tmp_path, new)
    apply_orchestrations(box, tmp_path, COLLECT + new)
    publish(box, "order", "new", key="new")
    wait_until(lambda: sent(recorder) == [b"ask", b"echo new"], what="an instance of version 2")
    publish(box, "reply", "1", "2", key="old")
    wait_until(lambda: b"1 2" in sent(recorder), what="the end of the old instance")
    wait_until(lambda: is_empty(box), what="no instance")
    apply_orchestrations(box, tmp_path, new)
    assert box.count("orchestrations") == 1


def test_a_send_without_subscribers_raises_in_the_orchestration(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        """
        from postroom.errors import RoutingFailure

        @app.orchestration(activate=Kind == "order", host="Default")
        async def publish(order: Message) -> None:
            await orchestrations.send(Message.of(b"before"), to="Out")
            try:
                await orchestrations.send(Message.of(b"for nobody", promoted={Kind: "unknown"}))
            except RoutingFailure:
                await orchestrations.send(Message.of(b"handled"), to="Out")
        """,
    )
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"before", b"handled"], what="the end of the instance")
    assert box.count("orchestration_instances") == 0


def test_a_port_that_was_removed_and_declared_again_gets_messages(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    code = ECHO.replace('to="Out"', 'to="Extra"')
    port = 'app.send_port("Extra", adapters.Null(), host="Default")\n'
    box.connection.execute("UPDATE service_classes SET dequeue_threads = 1")
    apply_orchestrations(box, tmp_path, port + code)
    start_host(recorder)
    publish(box, "order", "1")
    wait_until(lambda: sent(recorder) == [b"echo 1"], what="the first message")
    wait_until(lambda: is_empty(box), what="the end of the instance")
    apply_orchestrations(box, tmp_path, code)
    apply_orchestrations(box, tmp_path, port + code)
    publish(box, "order", "2")
    wait_until(lambda: sent(recorder) == [b"echo 1", b"echo 2"], what="the second message")


def test_a_message_that_is_sent_through_a_port_reaches_other_subscribers_too(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """Binding does not make the delivery exclusive (SUB-11)."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        app.send_port("Other", adapters.Null(), filter=Kind == "result", host="Default")

        @app.orchestration(activate=Kind == "order", host="Default")
        async def publish(order: Message) -> None:
            await orchestrations.send(Message.of(b"", promoted={Kind: "result"}), to="Out")
        """,
    )
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sorted(one.port for one in recorder.sent) == ["Other", "Out"], what="both ports")


def test_a_stopped_orchestration_is_not_activated_and_its_instances_go_on(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    publish(box, "order", "", key="a")
    wait_until(lambda: sent(recorder) == [b"ask"], what="a waiting instance")
    orchestration_states.stop(box.connection, "collect")
    publish(box, "order", "", key="b")
    assert box.suspended() == [("PORT_STOPPED", True)]
    publish(box, "reply", "1", "2", key="a")
    wait_until(lambda: sent(recorder) == [b"1 2", b"ask"], what="the end of the running instance")
    assert orchestration_states.start(box.connection, "collect").resumed == 1
    wait_until(lambda: sent(recorder) == [b"1 2", b"ask", b"ask"], what="the activation of the other one")


def test_an_orchestration_learns_that_its_port_is_not_enlisted_and_not_that_it_is_stopped(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORS-02: an orchestration starts in any state of its ports."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        from postroom.errors import RoutingFailure

        app.send_port("Bound", adapters.Null(), state="bound", host="Default")
        app.send_port("Stopped", adapters.Null(), state="stopped", host="Default")

        @app.orchestration(activate=Kind == "order", host="Default")
        async def send_to_each(order: Message) -> None:
            await orchestrations.send(Message.of(b"suspended"), to="Stopped")
            with suppress(RoutingFailure):
                await orchestrations.send(Message.of(b"for nobody"), to="Bound")
                await orchestrations.send(Message.of(b"not reached"), to="Out")
            await orchestrations.send(Message.of(b"handled"), to="Out")
        """,
    )
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"handled"], what="the end of the instance")
    assert ("PORT_STOPPED", True) in box.suspended()


def test_an_operator_suspends_resumes_and_terminates_a_waiting_instance(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("orchestration_instances WHERE journal_length = 1 AND claim_id IS NULL") == 1)
    [instance] = list_instances(box.connection, InstanceQuery(port="collect"))
    assert (instance.state, instance.service) == (InstanceState.DEHYDRATED, "collect")
    suspend(box.connection, instance.instance_id)
    publish(box, "reply", "1")
    assert get_instance(box.connection, instance.instance_id).state is InstanceState.SUSPENDED
    resume(box.connection, instance.instance_id)
    wait_until(lambda: box.count("orchestration_journal") == 2, what="the first reply received")
    wait_until(lambda: box.count("orchestration_instances WHERE claim_id IS NULL") == 1, what="released")
    terminate(box.connection, instance.instance_id)
    wait_until(lambda: is_empty(box), what="the end of the instance")
    assert box.count("orchestration_journal") == box.count("orchestration_messages") == 0
    assert box.count("subscriptions WHERE instance_id IS NOT NULL AND removed_at IS NULL") == 0
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
    instance_id = box.one("SELECT instance_id FROM orchestration_instances")
    assert operation(box.connection, instance_id) is False
    (tmp_path / "go").touch()
    wait_until(lambda: host.orchestration_counts["discarded"] == 1, what="the end of its work")
    assert box.one("SELECT journal_length FROM orchestration_instances WHERE claim_id IS NULL") == 2
    assert not (tmp_path / "step1").exists()
    run_all_jobs_once(box.connection)
    if operation is terminate:
        assert is_empty(box)
        return
    assert get_instance(box.connection, instance_id).state is InstanceState.SUSPENDED
    resume(box.connection, instance_id)
    wait_until(lambda: sent(recorder) == [b"done"], what="the end of the instance")


def test_another_host_instance_continues_after_the_first_has_lost_its_claim(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """The first one works on a step while its claim is released. Its result is discarded, and the step runs again."""
    apply_orchestrations(
        box,
        tmp_path,
        f"""
        from pathlib import Path
        import time

        def work() -> int:
            folder = Path({str(tmp_path)!r})
            attempt = len(list(folder.glob("attempt*")))
            (folder / f"attempt{{attempt}}-{{orchestrations.step_key()}}").touch()
            while attempt == 0 and not (folder / "go").exists():
                time.sleep(0.01)
            return attempt

        @app.orchestration(activate=Kind == "order", host="Default")
        async def run(order: Message) -> None:
            number = await orchestrations.step(work)
            await orchestrations.send(Message.of(b"%d" % number), to="Out")
        """,
    )
    first = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: len(list(tmp_path.glob("attempt*"))) == 1, what="the first attempt")
    box.connection.execute("SELECT release_claims_default(%s)", (first.host_instance,))
    wait_until(lambda: sent(recorder) == [b"1"], what="the result of the second attempt")
    (tmp_path / "go").touch()
    wait_until(lambda: first.orchestration_counts["discarded"] == 1, what="the first result discarded")
    assert sent(recorder) == [b"1"]
    assert len({path.name.partition("-")[2] for path in tmp_path.glob("attempt*")}) == 1
    assert check(box.connection) == []


def test_a_long_convoy_goes_on_with_fresh_journals(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """Another host instance continues it in the middle, with what the first one has carried over."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", convoy=[Key], correlations=[Replies], host="Default")
        async def add_up(first: Message) -> None:
            total = orchestrations.carried_state() or 0
            replies = Replies.of(first)
            for _ in range(10):
                total += int((await orchestrations.receive()).data)
            if total < 30:
                await orchestrations.continue_with(total)
            await orchestrations.send(Message.of(b"%d" % total), to="Out")
            await replies.receive()
        """,
    )
    first = start_host(recorder)
    publish(box, "order", *("1" for _ in range(13)))
    journal = "orchestration_instances WHERE journals = 1 AND carried::text = '10'"
    wait_until(lambda: box.count(journal) == 1, what="the second journal")
    wait_until(lambda: box.count("orchestration_messages WHERE consumed_in IS NOT NULL") == 3, what="12 received")
    assert box.count("subscriptions WHERE instance_id IS NOT NULL AND removed_at IS NULL") == 1
    first.stop()
    start_host(recorder)
    publish(box, "order", *("1" for _ in range(18)))
    wait_until(lambda: sent(recorder) == [b"30"], what="the total of all messages")
    publish(box, "reply", "")
    wait_until(lambda: is_empty(box), what="the end of the instance")
    assert check(box.connection) == []


def test_an_orchestration_that_never_waits_is_suspended_and_does_not_block_others(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", host="Default")
        async def spin(order: Message) -> None:
            while order.data == b"spin":
                pass
            await orchestrations.send(Message.of(order.data), to="Out")
        """,
    )
    host = start_host(recorder, settings=replace(SETTINGS, turn_limit=timedelta(seconds=0.3)))
    publish(box, "order", *["spin"] * 6, "fine")
    suspended = "orchestration_instances WHERE suspended_at IS NOT NULL"
    wait_until(lambda: box.count(suspended) == 6, what="all of them suspended")
    wait_until(lambda: sent(recorder) == [b"fine"], what="the other one")
    description = box.one("SELECT error_description FROM orchestration_instances LIMIT 1")
    assert "neither waited nor ended within 0.3 seconds" in description
    assert "in spin" in description
    wait_until(lambda: host.find_problems() == [], what="no thread is stuck")


def test_a_request_through_a_two_way_port_returns_its_response(box: Box, tmp_path: Path, start_host: StartHost) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        """
        app.send_port("Partner", adapters.Null(), host="Default")

        @app.orchestration(activate=Kind == "order", host="Default")
        async def ask(order: Message) -> None:
            response = await orchestrations.request(Message.of(order.data), to="Partner")
            await orchestrations.send(Message.of(b"got " + response.data), to="Out")
        """,
    )
    make_two_way(box, "Partner")
    partner = AnsweringAdapter(lambda body: b"answer to " + body)
    start_host(partner)
    publish(box, "order", "1", "2")
    wait_until(
        lambda: [body for body in sent(partner) if body.startswith(b"got")] == [b"got answer to 1", b"got answer to 2"],
        what="both responses",
    )
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


def test_a_claim_whose_messages_could_not_be_read_is_released(
    box: Box,
    tmp_path: Path,
    start_host: StartHost,
    recorder: RecordingAdapter,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    read_messages = HostOrchestrations.read_messages
    failures = iter([MessageBoxUnavailable("The connection was lost.")])

    def fail_once(*arguments: Any) -> Any:
        if (error := next(failures, None)) is not None:
            raise error
        return read_messages(*arguments)

    monkeypatch.setattr(HostOrchestrations, "read_messages", fail_once)
    start_host(recorder)
    publish(box, "order", "1")
    wait_until(lambda: sent(recorder) == [b"echo 1"], what="the message sent")
