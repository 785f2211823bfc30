"""Correlations: which messages belong to an instance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from postroom.errors import BadValue, DefinitionError
from postroom.filters.expression import Filter, Operator, all_of
from postroom.filters.text import format_filter
from postroom.message import Message
from postroom.orchestrations.execution import Execution, get_execution
from postroom.properties import Property


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

    async def receive(self) -> Message:
        """Wait for the next message."""
        return await self._execution.receive(self._number)

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
