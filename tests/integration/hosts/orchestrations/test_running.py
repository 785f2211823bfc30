"""Host instances run orchestrations: they are activated, wait for correlated messages, send, and end."""

from __future__ import annotations

import uuid
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from postroom.errors import MessageBoxUnavailable, PublishFailed
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.orchestration_instances import HostOrchestrations
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support.box import Box
from tests.support.contents import Contents
from tests.support.orchestrations import COLLECT, ECHO, apply_orchestrations, is_empty, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.two_way import AnsweringAdapter
from tests.support.waiting import wait_until


def test_a_message_activates_an_instance_that_sends_through_a_bound_port(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """FLT-05, ORC-01: no other message starts one."""
    apply_orchestrations(box, tmp_path, ECHO)
    start_host(recorder)
    publish(box, "order", "1", "2")
    wait_until(lambda: sent(recorder) == [b"echo 1", b"echo 2"], what="both messages sent")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert box.count("journal entries") == box.count("orchestration messages") == 0
    assert check(box.connection) == []
    with pytest.raises(PublishFailed):
        publish(box, "invoice", "3")


def test_correlated_messages_reach_the_waiting_instance(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    publish(box, "order", "", key="a")
    publish(box, "order", "", key="b")
    wait_until(lambda: sent(recorder) == [b"ask"] * 2, what="two waiting instances")
    wait_until(lambda: box.count("unclaimed orchestrations") == 2, what="both released")
    assert box.count("instance subscriptions") == 2
    publish(box, "reply", "a1", key="a")
    publish(box, "reply", "b1", "b2", key="b")
    publish(box, "reply", "a2", key="a")
    wait_until(lambda: sent(recorder) == [b"a1 a2", b"ask", b"ask", b"b1 b2"], what="both answers")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


def test_a_timer_wakes_an_instance(box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter) -> None:
    """ORC-35: the instance was dehydrated."""
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


def test_an_instance_is_not_claimed_before_the_earlier_message_of_an_interrupted_claim(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    host = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"ask"], what="the waiting instance")
    host.stop()
    publish(box, "reply", "1", "2")
    procedures, services = HostOrchestrations("Default"), [box.orchestration_ids()[0]]

    def claim() -> int:
        claim_id = uuid.uuid4()
        return len(procedures.claim(box.connection, claim_id=claim_id, host_instance=1, limit=9, services=services))

    with connect(box.url) as other, other.transaction():
        Contents(other).lock_first_queued()
        assert claim() == 0
        assert box.count("unreceived orchestration messages") == 1
    assert claim() == 1
    assert box.count("unreceived orchestration messages") == 2


def test_a_send_without_subscribers_raises_in_the_orchestration(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """NRF-10: an exception that is not handled suspends the instance."""
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
                if order.data == b"raise":
                    raise
                await orchestrations.send(Message.of(b"handled"), to="Out")
        """,
    )
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"before", b"handled"], what="the end of the instance")
    assert box.count("orchestration instances") == 0
    publish(box, "order", "raise")
    wait_until(lambda: box.count("suspended orchestrations") == 1, what="suspended")
    description = box.read_orchestration_error()
    assert "could not be routed because no subscribers were found" in description


def test_a_port_that_was_removed_and_declared_again_gets_messages(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    code = ECHO.replace('to="Out"', 'to="".join(["Extra"])')  # the name is known when the message is sent
    port = 'app.send_port("Extra", adapters.Null(), host="Default")\n'
    box.set_dequeuing(threads=1)
    apply_orchestrations(box, tmp_path, port + code)
    start_host(recorder)
    publish(box, "order", "1")
    wait_until(lambda: sent(recorder) == [b"echo 1"], what="the first message")
    wait_until(lambda: is_empty(box), what="the end of the instance")
    apply_orchestrations(box, tmp_path, code)
    apply_orchestrations(box, tmp_path, port + code)
    publish(box, "order", "2")
    wait_until(lambda: sent(recorder) == [b"echo 1", b"echo 2"], what="the second message")
    assert box.count("suspended") == 0  # no report about a message that has a subscriber


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


def test_another_host_instance_continues_after_the_first_has_lost_its_claim(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-31: the first one works on a step while its claim is released. Its result is discarded, and the step runs
    again."""
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
    wait_until(lambda: box.count("suspended orchestrations") == 6, what="all of them suspended")
    wait_until(lambda: sent(recorder) == [b"fine"], what="the other one")
    description = box.read_orchestration_error()
    assert "neither waited nor ended within 0.3 seconds" in description
    assert "in spin" in description
    wait_until(lambda: host.find_problems() == [], what="no thread is stuck")


def test_a_request_through_a_two_way_port_returns_its_response(box: Box, tmp_path: Path, start_host: StartHost) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        """
        app.send_port("Partner", adapters.Http("http://127.0.0.1:9/"), host="Default", two_way=True)

        @app.orchestration(activate=Kind == "order", host="Default")
        async def ask(order: Message) -> None:
            response = await orchestrations.request(Message.of(order.data), to="Partner")
            await orchestrations.send(Message.of(b"got " + response.data), to="Out")
        """,
    )
    partner = AnsweringAdapter(lambda body: b"answer to " + body)
    start_host(partner)
    publish(box, "order", "1", "2")
    wait_until(
        lambda: [body for body in sent(partner) if body.startswith(b"got")] == [b"got answer to 1", b"got answer to 2"],
        what="both responses",
    )
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


def test_a_response_can_be_sent_as_the_next_request(box: Box, tmp_path: Path, start_host: StartHost) -> None:
    """A response carries what routes it to its caller. As a request it must not reach the instance that sends it."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        app.send_port("Partner", adapters.Http("http://127.0.0.1:9/"), host="Default", two_way=True)

        @app.orchestration(activate=Kind == "order", host="Default")
        async def ask_twice(order: Message) -> None:
            first = await orchestrations.request(Message.of(order.data), to="Partner")
            second = await orchestrations.request(first, to="Partner")
            await orchestrations.send(Message.of(b"got " + second.data), to="Out")
        """,
    )
    partner = AnsweringAdapter(lambda body: b"answer to " + body)
    start_host(partner)
    publish(box, "order", "1")
    wait_until(lambda: any(body.startswith(b"got") for body in sent(partner)), what="the result")
    assert b"got answer to answer to 1" in sent(partner)
    wait_until(lambda: is_empty(box), what="the end of the instance")
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
