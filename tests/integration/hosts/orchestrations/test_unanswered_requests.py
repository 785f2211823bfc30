"""Whoever waits for the answer of an orchestration gets a fault as soon as it cannot answer (ACK-01, RR-11)."""

from __future__ import annotations

import textwrap
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from postroom import Client, Message
from postroom.errors import NoResponse
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.orchestration_instances import HostOrchestrations
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support.box import Box
from tests.support.changes import resume, suspend, terminate
from tests.support.orchestrations import Key, Kind, apply_orchestrations, has_ended, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import PATIENCE, wait_until

#: Waits for a reply from outside before it answers.
WAIT = """
@app.orchestration(activate=Kind == "question", correlations=[Replies], host="Default")
async def answer(question: Message) -> None:
    replies = Replies.of(question)
    await orchestrations.send(Message.of(b"asked"), to="Out")
    reply = await replies.receive()
    await orchestrations.send(Message.of(reply.data), to=orchestrations.reply_port(question))
"""


Ask = Callable[..., "Future[Message]"]


@pytest.fixture
def ask(box: Box) -> Iterator[Ask]:
    """Yield a function that sends a request of a program, and returns the future of its response."""
    with ThreadPoolExecutor() as threads, Client(box.url) as client:

        def send(body: bytes = b"?", kind: str = "question") -> Future[Message]:
            return threads.submit(client.request, body, promoted={Kind: kind, Key: "k"}, timeout=PATIENCE)

        yield send


def read_reason(future: Future[Message]) -> str:
    with pytest.raises(NoResponse) as caught:
        future.result(PATIENCE)
    return str(caught.value.why)


@pytest.mark.parametrize(
    ("action", "reason"),
    [
        ("raise ValueError('no price')", "was suspended: ValueError: no price"),
        ("pass", "has ended without an answer."),
        ("await orchestrations.terminate('closed')", "has terminated itself: closed"),
        ("await orchestrations.suspend('needs a look')", "has suspended itself: needs a look"),
        ("await orchestrations.continue_with(None)", "has ended without an answer."),
        (
            "while True: pass",
            "was suspended: The orchestration neither waited nor ended within 0.5 seconds.",
        ),
    ],
)
def test_an_orchestration_that_does_not_answer_gives_a_fault_to_its_caller(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, ask: Ask, action: str, reason: str
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        f"""
        @app.orchestration(activate=Kind == "question", host="Default")
        async def answer(question: Message) -> None:
            if question.data == b"?" and not orchestrations.carried_state():
                {action.replace("None", "True")}
            elif question.data != b"?":
                await orchestrations.send(Message.of(b"42"), to=orchestrations.reply_port(question))
        """,
    )
    start_host(recorder, settings=replace(SETTINGS, turn_limit=timedelta(seconds=0.5)))
    assert read_reason(ask()) == f"The orchestration 'answer' {reason}"
    assert ask(b"6 * 7").result(PATIENCE).data == b"42"
    assert check(box.connection) == []


@pytest.mark.parametrize(
    ("change", "reason"),
    [(suspend, "was suspended by an operator."), (terminate, "was terminated by an operator.")],
)
def test_an_operator_who_stops_an_instance_gives_a_fault_to_its_caller(
    box: Box,
    tmp_path: Path,
    start_host: StartHost,
    recorder: RecordingAdapter,
    ask: Ask,
    change: Callable[..., object],
    reason: str,
) -> None:
    apply_orchestrations(box, tmp_path, WAIT)
    start_host(recorder)
    future = ask()
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="the waiting instance")
    [instance] = box.orchestration_instances()
    change(box.connection, instance.instance_id)
    assert read_reason(future) == f"The orchestration 'answer' {reason}"
    assert check(box.connection) == []


def test_an_operator_who_stops_an_instance_before_it_starts_gives_a_fault_to_its_caller(
    box: Box, tmp_path: Path, ask: Ask
) -> None:
    """Its request is in the queue of a host that does not run."""
    apply_orchestrations(box, tmp_path, WAIT)
    for change, state in (suspend, "suspended"), (terminate, "terminated"):
        future = ask()
        wait_until(lambda: len(box.running_orchestrations()) == 1, what="the request")
        [instance_id] = box.running_orchestrations()
        change(box.connection, instance_id)
        assert read_reason(future) == f"The orchestration 'answer' was {state} by an operator."
        box.connection.execute("SELECT terminate_instances(ARRAY[%s::uuid])", (instance_id,))
    assert box.count("messages") == 0
    assert check(box.connection) == []


def test_an_instance_that_kills_its_hosts_gives_a_fault_to_its_caller(box: Box, tmp_path: Path, ask: Ask) -> None:
    apply_orchestrations(box, tmp_path, WAIT)
    future = ask()
    wait_until(lambda: box.count("queued") == 1, what="the request")
    procedures, services = HostOrchestrations("Default"), box.orchestration_ids()
    for _ in range(5):
        claim_id = uuid.uuid4()
        assert procedures.claim(box.connection, claim_id=claim_id, host_instance=1, limit=1, services=services)
        procedures.release(box.connection, claim_id, is_out_of_memory=True)
    assert read_reason(future) == (
        "The orchestration 'answer' was suspended: host processes that worked on it ended five times."
    )
    assert check(box.connection) == []


def test_a_late_answer_is_suspended_after_a_resume(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, ask: Ask
) -> None:
    """RR-05: the caller has got its fault, and the instance gives no second one."""
    apply_orchestrations(box, tmp_path, WAIT)
    start_host(recorder)
    future = ask()
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="the waiting instance")
    [instance] = box.orchestration_instances()
    suspend(box.connection, instance.instance_id)
    read_reason(future)
    resume(box.connection, instance.instance_id)
    publish(box, "reply", "late")
    wait_until(lambda: has_ended(box), what="the end of the instance")
    assert box.suspended() == [("CORRELATION", False)]
    assert check(box.connection) == []


def test_an_orchestration_without_an_answer_leaves_the_caller_to_others(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, ask: Ask
) -> None:
    """Its code does not refer to a reply port: it only reads the request, and may fail."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "question", host="Default")
        async def audit(question: Message) -> None:
            if question.data == b"fail":
                raise ValueError("no audit")
        """
        + textwrap.indent(WAIT, " " * 8),
    )
    start_host(recorder)
    for body in b"?", b"fail":
        future = ask(body)
        wait_until(lambda: box.count("waiting orchestrations") == 1, what="the waiting instance")
        publish(box, "reply", "42")
        assert future.result(PATIENCE).data == b"42"
    assert box.count("suspended orchestrations") == 1
    assert check(box.connection) == []


def test_a_request_that_is_sent_on_belongs_to_the_orchestration_that_gets_it(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, ask: Ask
) -> None:
    """The first one ends without an answer, or fails before it has sent the request on."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        Checks = orchestrations.PartnerPort("check", "Checks")

        @app.orchestration(host="Default")
        async def answer(question: Message) -> None:
            if question.data == b"fail later":
                raise ValueError("later")
            await orchestrations.send(Message.of(b"answer"), to=orchestrations.reply_port(question))

        @app.orchestration(activate=Checks.filter, host="Default")
        async def check(question: Message) -> None:
            await orchestrations.send(Message.of(b"checked"), to=orchestrations.reply_port(question))

        @app.orchestration(activate=Kind == "question", host="Default")
        async def dispatch(question: Message) -> None:
            if question.data == b"fail":
                raise ValueError("at once")
            if question.data == b"check":
                await orchestrations.send(question, to=Checks)
            else:
                await orchestrations.start(answer, question)
        """,
    )
    start_host(recorder)
    assert ask().result(PATIENCE).data == b"answer"
    assert ask(b"check").result(PATIENCE).data == b"checked"
    assert read_reason(ask(b"fail")) == "The orchestration 'dispatch' was suspended: ValueError: at once"
    assert read_reason(ask(b"fail later")) == "The orchestration 'answer' was suspended: ValueError: later"
    assert check(box.connection) == []


@pytest.mark.parametrize(
    ("action", "reason"),
    [("raise ValueError('no')", "was suspended: ValueError: no"), ("pass", "has ended without an answer.")],
)
def test_an_orchestration_that_was_started_gives_a_fault_to_the_one_that_waits_for_its_reply(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, action: str, reason: str
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        f"""
        from postroom.errors import DeliveryFailure

        @app.orchestration(host="Default")
        async def check(order: Message) -> None:
            if order.data == b"good":
                return await orchestrations.send(order, to=orchestrations.reply_port(order))
            {action}

        @app.orchestration(activate=Kind == "order", host="Default")
        async def sell(order: Message) -> None:
            replies = orchestrations.open_port()
            await orchestrations.start(check, order, reply_to=replies)
            try:
                text = (await replies.receive()).data.decode()
            except DeliveryFailure as error:
                text = error.why
            await orchestrations.send(Message.of(text.encode()), to="Out")
        """,
    )
    start_host(recorder)
    publish(box, "order", "good", "bad")
    wait_until(lambda: len(sent(recorder)) == 2, what="both orders")
    assert sent(recorder) == [f"The orchestration 'check' {reason}".encode(), b"good"]
    wait_until(lambda: not box.running_orchestrations() or box.count("suspended orchestrations"), what="the end")
    assert [code for code, _ in box.suspended() if code != "ORCHESTRATION"] == [], "no fault is left over"
    assert check(box.connection) == []


def test_receivers_of_a_partner_port_need_not_reply_and_give_a_fault_if_they_fail(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        """
        from postroom.errors import DeliveryFailure

        Offers = orchestrations.PartnerPort("buy", "Offers")

        @app.orchestration(activate=Offers.filter, host="Default")
        async def not_interested(order: Message) -> None:
            if order.data == b"?":
                await orchestrations.send(Message.of(b"never"), to=orchestrations.reply_port(order))

        @app.orchestration(activate=Offers.filter, host="Default")
        async def bid(order: Message) -> None:
            if order.data == b"fail":
                raise ValueError("no bid")
            await orchestrations.delay(0.2)
            await orchestrations.send(Message.of(b"bid"), to=orchestrations.reply_port(order))

        @app.orchestration(activate=Kind == "order", host="Default")
        async def buy(order: Message) -> None:
            replies = orchestrations.open_port()
            await orchestrations.send(Message.of(order.data), to=Offers, reply_to=replies)
            try:
                text = (await replies.receive()).data
            except DeliveryFailure:
                text = b"failed"
            await orchestrations.send(Message.of(text), to="Out")
        """,
    )
    start_host(recorder)
    publish(box, "order", "good", "fail")
    wait_until(lambda: sent(recorder) == [b"bid", b"failed"], what="the bids")
    assert check(box.connection) == []


def test_an_orchestration_that_requests_gets_the_fault_of_the_one_that_answers(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """RR-11: its request reaches an orchestration, too, and the send port waits for its retry."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        from postroom.errors import DeliveryFailure

        app.send_port("Service", adapters.Http("http://127.0.0.1:9/"), two_way=True, state="stopped", host="Default")

        @app.orchestration(activate=Kind == "question", host="Default")
        async def answer(question: Message) -> None:
            raise ValueError(orchestrations.reply_port(question).full_name)

        @app.orchestration(activate=Kind == "order", host="Default")
        async def sell(order: Message) -> None:
            question = Message.of(b"price?", promoted={Kind: "question"})
            try:
                await orchestrations.request(question, to="Service")
            except DeliveryFailure as error:
                await orchestrations.send(Message.of(error.why.encode()), to="Out")
        """,
    )
    start_host(recorder)
    publish(box, "order", "")
    expected = b"The orchestration 'answer' was suspended: ValueError: caller"
    wait_until(lambda: sent(recorder) == [expected], what="the fault")
    assert check(box.connection) == []


def test_a_request_that_joins_an_instance_too_late_gives_a_fault_to_its_caller(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, ask: Ask
) -> None:
    """A convoy is suspended, or ends, with requests that it has not received."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "question", convoy=[Key], host="Default")
        async def answer(question: Message) -> None:
            while question.data != b"fail":
                await orchestrations.send(question, to=orchestrations.reply_port(question))
                question = await orchestrations.receive()
            raise ValueError("failed")
        """,
    )
    start_host(recorder)
    assert ask().result(PATIENCE).data == b"?"
    reason = "The orchestration 'answer' was suspended: ValueError: failed"
    assert read_reason(ask(b"fail")) == reason
    assert read_reason(ask(b"later")) == "The orchestration 'answer' is suspended."
    assert check(box.connection) == []
