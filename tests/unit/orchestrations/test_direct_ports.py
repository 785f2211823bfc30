"""Self-correlating ports and partner ports: orchestrations send to each other (ORC-11 … 13)."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from postroom import Message, Property, orchestrations, testing
from postroom.correlation_tokens import add_token
from postroom.errors import DefinitionError, RoutingFailure, StateError
from postroom.filters.evaluate import matches
from postroom.orchestrations import Correlation, PartnerPort
from postroom.system_properties import BTS
from tests.support.offers import Kind, OrderId, bodies, declare, message

Requests = PartnerPort("check", "Requests")


async def check(order: Message) -> None:
    await orchestrations.send(Message.of(b"checked " + order.data), to=orchestrations.reply_port(order))


CHECK = declare(check, activate=None)


def test_a_started_orchestration_replies_to_the_port_of_the_instance(crashes: bool) -> None:
    """ORC-07: after the reply it has subscribed."""

    async def sell(order: Message) -> None:
        replies = orchestrations.open_port()
        await orchestrations.start(CHECK, order, reply_to=replies)
        await orchestrations.send(await replies.receive(), to="Buyer")

    run = testing.start(declare(sell), message("order", b"1"), crashes=crashes)
    checking = testing.start(CHECK, run.sent[0].message, crashes=crashes)
    assert [sent.port for sent in checking.sent] == ["reply port"]
    run.publish(checking.sent[0].message)
    assert (bodies(run)[1:], run.has_ended, run.unreceived_messages) == ([b"checked 1"], True, [])
    assert dict(run.sent[1].message.context.promoted) == {}, "a message that is sent on is not addressed any more"


def test_each_port_of_each_instance_receives_its_own_messages(crashes: bool) -> None:
    async def sell(order: Message) -> None:
        ports = [orchestrations.open_port() for _ in range(2)]
        for port in ports:
            await orchestrations.send(order, to="Partner", reply_to=port)
        second, first = await asyncio.gather(ports[1].receive(), ports[0].receive())
        await orchestrations.send(Message.of(first.data + second.data), to="Buyer")

    run = testing.start(declare(sell), message("order"), crashes=crashes)
    other = testing.start(declare(sell), message("order"), crashes=crashes)
    to_other = orchestrations.reply_port(other.sent[0].message)
    run.publish(Message.of(b"x"), to=to_other)
    assert [one.data for one in run.unreceived_messages] == [b"x"]
    for sent, body in zip(run.sent[1::-1], (b"2", b"1"), strict=True):
        run.publish(Message.of(body), to=orchestrations.reply_port(sent.message))
    assert bodies(run)[2:] == [b"12"]


def test_many_orchestrations_send_to_a_partner_port(crashes: bool) -> None:
    async def sell(order: Message) -> None:
        replies = orchestrations.open_port()
        await orchestrations.send(order, to=Requests, reply_to=replies)
        await orchestrations.send(await replies.receive(), to="Buyer")

    run = testing.start(declare(sell), message("order", b"1"), crashes=crashes)
    [sent] = run.sent
    assert sent.port == "check.Requests"
    assert matches(Requests.filter, sent.message.context.promoted)
    assert not matches(PartnerPort("check", "Others").filter, sent.message.context.promoted)
    assert sent.message.context[OrderId] == "1"
    checking = testing.start(declare(check, activate=Requests.filter), sent.message, crashes=crashes)
    run.publish(checking.sent[0].message)
    assert (bodies(run)[1:], run.has_ended) == ([b"checked 1"], True)


def test_an_instance_receives_from_a_partner_port_by_correlation(crashes: bool) -> None:
    at_port = Correlation(OrderId, filter=Requests.filter)

    async def collect(order: Message) -> None:
        await orchestrations.send(await at_port.of(order).receive(), to="Buyer")

    run = testing.start(declare(collect), message("order"), crashes=crashes)
    run.publish(message("order", b"published"))
    assert not run.has_ended
    run.publish(message("order", b"sent to the port"), to=Requests)
    assert bodies(run) == [b"sent to the port"]


def test_a_send_to_a_partner_port_without_receivers_raises(crashes: bool) -> None:
    async def sell(order: Message) -> None:
        try:
            await orchestrations.send(order, to=Requests)
        except RoutingFailure:
            await orchestrations.send(Message.of(b"nobody"), to="Buyer")

    run = testing.start(declare(sell), message("order"), subscribed=["Buyer"], crashes=crashes)
    assert bodies(run) == [b"nobody"]


def test_an_answer_to_a_caller_does_not_raise_if_the_caller_is_gone(crashes: bool) -> None:
    question = Message.of(b"1", written={BTS.EpmRRCorrelationToken: "gone"})
    run = testing.start(CHECK, question, subscribed=[], crashes=crashes)
    assert (bodies(run), run.has_ended) == ([b"checked 1"], True)


def test_a_message_that_is_sent_on_keeps_the_port_for_replies() -> None:
    async def forward(order: Message) -> None:
        await orchestrations.start(CHECK, order)

    run = testing.start(declare(forward), Message.of(b"", written={BTS.ReplyTo: "token"}))
    assert orchestrations.reply_port(run.sent[0].message).properties == {BTS.PartnerService: "token"}


@pytest.mark.parametrize("address", [{BTS.EpmRRCorrelationToken: "caller"}, {BTS.ReplyTo: "port"}])
def test_an_answer_has_one_addressee(address: dict[Property, str], crashes: bool) -> None:
    """A message that is sent back does not activate its own orchestration again."""

    async def echo(order: Message) -> None:
        await orchestrations.send(order, to=orchestrations.reply_port(order))

    question = Message.of(b"1", promoted={OrderId: "1", Kind: "order"}, written=address)
    [sent] = testing.start(declare(echo), question, crashes=crashes).sent
    assert dict(sent.message.context.promoted) == {
        prop.key: value for prop, value in orchestrations.reply_port(question).properties.items()
    }
    assert (sent.message.context[OrderId], sent.message.context[Kind]) == ("1", "order")


def test_a_request_that_is_sent_on_does_not_have_the_token_of_its_caller(crashes: bool) -> None:
    """RR-15: only another orchestration can answer the caller."""

    async def forward(order: Message) -> None:
        await orchestrations.send(order, to="Warehouse")
        await orchestrations.send(order)
        await orchestrations.send(order, to=Requests)
        await orchestrations.deliver(order, to="Warehouse")

    question = Message.of(b"1", promoted={OrderId: "1"})
    question = replace(question, context=add_token(question.context, "caller"))
    run = testing.start(declare(forward), question, crashes=crashes)
    at_port, published, at_partner, delivered = (sent.message.context for sent in run.sent)
    for context in (at_port, published, delivered):
        assert dict(context.promoted) == {OrderId.key: "1"}
        assert BTS.EpmRRCorrelationToken not in context
        assert BTS.CorrelationToken not in context
        assert BTS.IsRequestResponse not in context
    assert at_partner.promoted.keys() == {OrderId.key, BTS.PartnerService.key, BTS.PartnerPort.key}
    assert at_partner[BTS.EpmRRCorrelationToken] == "caller", "the other orchestration can answer the caller"


def test_a_response_that_is_sent_on_is_no_response_any_more(crashes: bool) -> None:
    async def ask(order: Message) -> None:
        await orchestrations.send(await orchestrations.request(order, to="Pricing"), to="Buyer")

    run = testing.start(declare(ask), message("order"), crashes=crashes)
    run.publish(Message.of(b"9", promoted={OrderId: "1"}), to=orchestrations.reply_port(run.sent[0].message))
    context = run.sent[1].message.context
    assert BTS.EpmRRCorrelationToken not in context
    assert BTS.RouteDirectToTP not in context


def test_a_message_without_a_port_for_replies_and_a_partner_port_without_a_name_are_refused() -> None:
    with pytest.raises(StateError, match="Nobody waits for a reply"):
        orchestrations.reply_port(message("order"))
    with pytest.raises(DefinitionError, match="cannot have the names 'check' and ''"):
        PartnerPort("check", "")
