"""Which messages belong to an instance: correlations, and direct ports.

Orchestrations send messages to each other through direct ports, without a send port (ORC-11 … 13):

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

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from postroom.correlation_tokens import demote_token
from postroom.errors import BadValue, DefinitionError, DeliveryFailure, StateError
from postroom.filters.expression import Filter, Operator, all_of
from postroom.filters.text import format_filter
from postroom.message import Context, Message
from postroom.orchestrations.execution import Execution, get_execution
from postroom.orchestrations.receives import to_filter
from postroom.properties import Property
from postroom.schemas import Schema
from postroom.system_properties import BTS
from postroom.values import Value

#: The name of the direct port of a caller that waits for the response to a request.
CALLER = "caller"
#: The properties that address a message to an orchestration. A message that is sent on loses them.
_ADDRESS = (BTS.ActivationServiceID, BTS.PartnerService, BTS.PartnerPort)


class Correlation:
    """Says which messages belong to an instance: those with the same values of ``properties``, and with ``filter``.

    Offers = Correlation(OrderId, filter=Kind == "offer")

    offers = Offers.of(order)            # from now on, offers for this order are routed to this instance
    first = await offers.receive()
    """

    def __init__(self, *properties: Property, filter: Filter | None = None) -> None:
        self.properties = properties
        self.filter = filter
        fixed = _list_equalities(filter)
        keys = [prop.key for prop in (*properties, *(predicate.property for predicate in fixed))]
        if not properties or len(set(keys)) < len(keys):
            raise DefinitionError(
                f"A correlation needs one property at least, and each one once, not {', '.join(keys) or 'none'}.",
                hint="Correlation(OrderId, filter=Kind == 'offer')",
            )
        #: All properties that a message needs, in the order of their keys.
        self.all_properties: tuple[Property, ...] = tuple(
            sorted((*properties, *(predicate.property for predicate in fixed)), key=lambda prop: prop.key)
        )

    def of(self, values: Message | Mapping[Property, object]) -> CorrelationSet:
        """Initialise a correlation set with the values of a message, or with given values. From the next persistence
        point on, messages that match are routed to this instance, and wait until it receives them."""
        source = values.context if isinstance(values, Message) else values
        missing = [prop.dotted_name for prop in self.properties if source.get(prop) is None]
        if missing:
            raise BadValue(
                f"The correlation set has no value for {', '.join(missing)}.",
                hint="Promote the property in the message, or pass a value for it.",
            )
        filters = [prop == source[prop] for prop in self.properties]
        given = [] if self.filter is None else [self.filter]
        filter = all_of([*given, *filters])
        execution = get_execution()
        return CorrelationSet(execution, execution.correlate(filter))


class CorrelationSet:
    """The values of a correlation in one instance. ``receive`` returns its messages in the order of their arrival."""

    def __init__(self, execution: Execution, number: int) -> None:
        self._execution = execution
        self._number = number

    async def receive(self, only: Filter | Schema | str | None = None) -> Message:
        """Wait for the next message. With ``only`` it is the next one that matches a filter, or that has a message
        type, which is a text or a schema. Other messages stay for other receives."""
        return await self._execution.receive(self._number, None if only is None else to_filter(only))

    async def __aiter__(self) -> AsyncIterator[Message]:
        while True:
            yield await self.receive()


def _list_equalities(filter: Filter | None) -> Sequence[Any]:
    if filter is None:
        return ()
    [group, *others] = filter.groups
    if others or any(predicate.operator is not Operator.EQ for predicate in group):
        raise DefinitionError(
            f"A correlation cannot have the filter {format_filter(filter)}.",
            why="Waiting instances are found by the values of properties.",
            hint="Use only ==, joined by &.",
        )
    return group


# -- direct ports ------------------------------------------------------------------------------------------------------


class DirectPort:
    """A destination without a send port: services that subscribe to ``properties`` receive the messages. The ports of
    ``reply_port`` have one receiver."""

    def __init__(self, full_name: str, properties: Mapping[Property, Value]) -> None:
        self.full_name = full_name
        self.properties = properties

    @property
    def filter(self) -> Filter:
        """The messages that are sent to the port."""
        return all_of([prop == value for prop, value in self.properties.items()])

    def address(self, message: Message) -> Message:
        """Return the message, addressed to the port and to nobody else: its own properties can be read, but are not
        promoted."""
        return self._promote_address(message, remove_address(message.context).demote_all())

    def _promote_address(self, message: Message, context: Context) -> Message:
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

    def address(self, message: Message) -> Message:
        """Return the message, addressed to the port. Its properties stay promoted, for receivers whose filter compares
        them."""
        return self._promote_address(message, demote_token(remove_address(message.context)))


class SelfCorrelatingPort(CorrelationSet):
    """A port of this instance. Pass it as ``reply_to``: what others send to it reaches this instance alone."""

    def __init__(self, execution: Execution) -> None:
        self.token = str(execution.make_id())
        super().__init__(execution, execution.correlate(_make_reply_port(self.token).filter))

    async def receive(self, only: Filter | Schema | str | None = None) -> Message:
        """Wait for the next reply, or the next one that ``only`` selects. Raise DeliveryFailure if an instance that has
        to reply is suspended or terminated, or if one that was started with ``start`` ends without a reply."""
        reply = await super().receive(None if only is None else to_filter(only) | (BTS.AckType == "NACK"))
        if reply.context.get(BTS.AckType) == "NACK":
            raise DeliveryFailure("There is no reply.", why=reply.context.get(BTS.AckDescription) or "")
        return reply


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


def remove_address(context: Context) -> Context:
    """Return the context of a received message without what addressed it to its receiver."""
    for prop in _ADDRESS:
        context = context.promote(prop, None)
    return context


def _make_reply_port(token: str) -> DirectPort:
    return DirectPort("reply port", {BTS.PartnerService: token})
