"""Orchestrations on hosts send to each other: self-correlating ports and partner ports (ORC-11 … 13)."""

from __future__ import annotations

from pathlib import Path

from postroom import BTS, Client, Message
from postroom.messagebox.maintenance.check import check
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.orchestrations import Kind, apply_orchestrations, has_ended, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import PATIENCE, wait_until


def test_a_reply_reaches_only_the_instance_that_has_opened_the_port(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(host="Default")
        async def check(order: Message) -> None:
            await orchestrations.send(Message.of(order.data), to=orchestrations.reply_port(order))

        @app.orchestration(activate=Kind == "order", host="Default")
        async def sell(order: Message) -> None:
            replies = orchestrations.open_port()
            await orchestrations.start(check, order, reply_to=replies)
            reply = await replies.receive()
            await orchestrations.send(Message.of(order.data + b" got " + reply.data), to="Out")
        """,
    )
    types = box.count("correlations")
    start_host(recorder)
    publish(box, "order", *"1234")
    wait_until(lambda: sent(recorder) == [b"1 got 1", b"2 got 2", b"3 got 3", b"4 got 4"], what="all replies")
    wait_until(lambda: has_ended(box), what="the end of the instances")
    assert box.count("correlations") == types, "no instance has to change the routing"
    assert check(box.connection) == []


def test_an_orchestration_answers_the_request_of_a_program(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "question", host="Default")
        async def answer(question: Message) -> None:
            await orchestrations.send(Message.of(question.data.upper()), to=orchestrations.reply_port(question))
        """,
    )
    start_host(recorder)
    with Client(box.url) as client:
        response = client.request(b"price?", promoted={Kind: "question"}, timeout=PATIENCE)
    assert response.data == b"PRICE?"
    wait_until(lambda: has_ended(box), what="the end of the instance")
    assert check(box.connection) == []


def test_a_request_that_is_sent_back_does_not_activate_its_orchestration_again(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """An answer has one addressee."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "question", host="Default")
        async def echo(question: Message) -> None:
            await orchestrations.send(Message.of(b"asked"), to="Out")
            await orchestrations.send(question, to=orchestrations.reply_port(question))
        """,
    )
    start_host(recorder)
    with Client(box.url) as client:
        response = client.request(b"price?", promoted={Kind: "question"}, timeout=PATIENCE)
    assert response.data == b"price?"
    wait_until(lambda: sent(recorder) and has_ended(box), what="the end of the instances")
    assert sent(recorder) == [b"asked"]
    assert box.suspended() == []
    assert check(box.connection) == []


def test_an_answer_to_a_caller_that_is_gone_is_suspended_and_the_orchestration_continues(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """RR-05, RR-07: as the response of a send port."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "question", host="Default")
        async def answer(question: Message) -> None:
            await orchestrations.send(Message.of(b"answer"), to=orchestrations.reply_port(question))
            await orchestrations.send(Message.of(b"after"), to="Out")
        """,
    )
    start_host(recorder)
    question = Message.of(b"", promoted={Kind: "question"}, written={BTS.EpmRRCorrelationToken: "gone"})
    box.agent(warm=False).publish([question])
    wait_until(lambda: sent(recorder) == [b"after"], what="the message after the answer")
    wait_until(lambda: has_ended(box), what="the end of the instance")
    assert box.suspended() == [("CORRELATION", False)]
    assert check(box.connection) == []


def test_a_partner_port_has_many_senders_or_many_receivers(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        """
        Requests = orchestrations.PartnerPort("check", "Requests")
        Results = orchestrations.PartnerPort("check", "Results")

        @app.orchestration(activate=Requests.filter, host="Default")
        async def check(order: Message) -> None:
            await orchestrations.send(Message.of(order.data), to=Results)

        @app.orchestration(activate=Kind == "order", host="Default")
        async def sell(order: Message) -> None:
            await orchestrations.send(Message.of(b"sell"), to=Requests)

        @app.orchestration(activate=Kind == "return", host="Default")
        async def take_back(order: Message) -> None:
            await orchestrations.send(Message.of(b"take back"), to=Requests)

        @app.orchestration(activate=Results.filter, host="Default")
        async def write_log(result: Message) -> None:
            await orchestrations.send(Message.of(b"log " + result.data), to="Out")

        @app.orchestration(activate=Results.filter, host="Default")
        async def tell_buyer(result: Message) -> None:
            await orchestrations.send(Message.of(b"tell " + result.data), to="Out")
        """,
    )
    start_host(recorder)
    publish(box, "order", "")
    publish(box, "return", "")
    everything = [b"log sell", b"log take back", b"tell sell", b"tell take back"]
    wait_until(lambda: sent(recorder) == everything, what="both results at both receivers")
    wait_until(lambda: has_ended(box), what="the end of the instances")
    assert check(box.connection) == []
