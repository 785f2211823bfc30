"""The test kit knows the send ports of the application, and refuses what plan refuses."""

from __future__ import annotations

import pytest

from postroom import Application, Message, adapters, orchestrations, testing
from postroom.errors import DefinitionError
from tests.support.offers import Kind, message

app = Application("shop")
out = app.send_port("Out", adapters.Null())
pricing = app.send_port("Pricing", adapters.Http("http://127.0.0.1:9/"), two_way=True)
ONE_WAY = "the send port 'Out' is one-way, so that a request gets no response. Use send or deliver."
TWO_WAY = "the send port 'Pricing' is two-way, so that nobody can wait for its delivery. Use request."


@app.orchestration(activate=Kind == "order")
async def ask_one_way(order: Message) -> None:
    await orchestrations.request(order, to=order.data.decode())


@app.orchestration(activate=Kind == "order")
async def ask_one_way_object(order: Message) -> None:
    await orchestrations.request(order, to=out)


@app.orchestration(activate=Kind == "order")
async def deliver_two_way(order: Message) -> None:
    await orchestrations.deliver(order, to="Pricing")


@app.orchestration(activate=Kind == "order")
async def use_all(order: Message) -> None:
    await orchestrations.send(order, to="Out")
    await orchestrations.send(order, to=pricing)
    await orchestrations.send(order, to="Of another application")
    await orchestrations.request(order, to=pricing)


@app.orchestration(activate=Kind == "order", bindings={"Quotes": out, "News": None})
async def ask_as_bound(order: Message) -> None:
    await orchestrations.send(order, to="News")
    await orchestrations.request(order, to=order.data.decode())


def test_calls_are_checked_with_the_bindings_that_the_application_declares() -> None:
    """ORC-13: what an operator binds is not known in a test."""
    for port, text in (
        ("Quotes", ONE_WAY),
        ("News", "the logical port 'News' is bound directly, so that nobody is certain to answer a request. Use send,"),
    ):
        with pytest.raises(DefinitionError, match=text):
            testing.start(ask_as_bound, message("order", port.encode()))


def test_a_request_through_a_one_way_port_is_refused() -> None:
    for orchestration in (ask_one_way, ask_one_way_object):
        with pytest.raises(DefinitionError) as raised:
            testing.start(orchestration, message("order", b"Out"))
        assert raised.value.what == f"orchestration {orchestration.name!r}: {ONE_WAY}"


def test_a_delivery_through_a_two_way_port_is_refused() -> None:
    with pytest.raises(DefinitionError) as raised:
        testing.start(deliver_two_way, message("order"))
    assert raised.value.what == f"orchestration 'deliver_two_way': {TWO_WAY}"


def test_other_calls_and_ports_of_other_applications_are_accepted(crashes: bool) -> None:
    run = testing.start(use_all, message("order"), crashes=crashes)
    assert [sent.port for sent in run.sent] == ["Out", "Pricing", "Of another application", "Pricing"]
    assert run.error is None
