"""Direct ports: orchestrations send messages to each other through the MessageBox, without a send port (ORC-11 … 13).

Requests = PartnerPort("check_credit", "Requests")

@app.orchestration(activate=Requests.filter)
async def check_credit(request: Message) -> None:
    await send(Message.of(b"granted"), to=reply_port(request))

@app.orchestration(activate=Kind == "order")
async def sell(order: Message) -> None:
    replies = open_port()
    await send(order, to=Requests, reply_to=replies)
    reply = await replies.receive()
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from postroom.errors import DefinitionError, StateError
from postroom.filters.expression import Filter, all_of
from postroom.message import Message
from postroom.orchestrations.correlation import CorrelationSet
from postroom.orchestrations.execution import Execution, get_execution
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.values import Value

#: The name of the direct port of a caller that waits for the response to a request.
CALLER = "caller"
#: The properties that address a message to an orchestration. A message that is sent on loses them.
_ADDRESS = (BTS.ActivationServiceID, BTS.PartnerService, BTS.PartnerPort)


class DirectPort:
    """A destination without a send port: services that subscribe to ``properties`` receive the messages."""

    def __init__(self, full_name: str, properties: Mapping[Property, Value]) -> None:
        self.full_name = full_name
        self.properties = properties

    @property
    def filter(self) -> Filter:
        """The messages that are sent to the port."""
        return all_of([prop == value for prop, value in self.properties.items()])

    def address(self, message: Message) -> Message:
        """Return the message, addressed to the port."""
        context = remove_address(message).context
        for prop, value in self.properties.items():
            context = context.promote(prop, value)
        return replace(message, context=context)


class PartnerPort(DirectPort):
    """A port of an orchestration, which others know by the names of both.

    Many orchestrations send to it, and the one that it belongs to is activated by ``filter``. Or that one sends to it,
    and many others are activated by ``filter``. Add what else a message must have: ``Requests.filter & (Kind == "a")``.
    A correlation can have the filter, too."""

    def __init__(self, orchestration: str, name: str) -> None:
        if not orchestration or not name:
            raise DefinitionError(
                f"A partner port cannot have the names {orchestration!r} and {name!r}.",
                hint='Name the orchestration and its port: PartnerPort("check_credit", "Requests").',
            )
        super().__init__(f"{orchestration}.{name}", {BTS.PartnerService: orchestration, BTS.PartnerPort: name})


class SelfCorrelatingPort(CorrelationSet):
    """A port of this instance. Pass it as ``reply_to``: what others send to it reaches this instance alone."""

    def __init__(self, execution: Execution) -> None:
        self.token = str(execution.make_id())
        super().__init__(execution, execution.correlate(_make_reply_port(self.token).filter))


def open_port() -> SelfCorrelatingPort:
    """Open a self-correlating port: a port of this instance, without a correlation."""
    return SelfCorrelatingPort(get_execution())


def reply_port(message: Message) -> DirectPort:
    """Return the port that answers to a message are sent to: the ``reply_to`` that its sender has passed, or the caller
    who waits for the response to a request. If the caller is gone, the answer is suspended."""
    context = message.context
    if (token := context.get(BTS.ReplyTo)) is not None:
        return _make_reply_port(token)
    if (token := context.get(BTS.EpmRRCorrelationToken)) is not None:
        common = context.get(BTS.CorrelationToken, token)
        response: dict[Property, Value] = {
            BTS.EpmRRCorrelationToken: token,
            BTS.CorrelationToken: common,
            BTS.RouteDirectToTP: True,
            BTS.SuspendMessageOnRoutingFailure: True,
        }
        return DirectPort(CALLER, response)
    raise StateError(
        "Nobody waits for a reply to the message.", hint="Its sender passes a port: send(message, reply_to=port)."
    )


def remove_address(message: Message) -> Message:
    """Return a received message without what addressed it to its receiver."""
    context = message.context
    for prop in _ADDRESS:
        context = context.promote(prop, None)
    return message if context is message.context else replace(message, context=context)


def _make_reply_port(token: str) -> DirectPort:
    return DirectPort("reply port", {BTS.PartnerService: token})
