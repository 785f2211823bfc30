"""Why a message goes where it goes: every subscription, predicate by predicate, the nearest misses first.

    explain_message(connection, message_id).subscribers[0].explanation.nearest

Send ports that are not enlisted are there too, by the filter that they would have.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from postroom.agent.batch import value_columns
from postroom.agent.chunks import Progress, chunks_of
from postroom.agent.interchange import Interchange, stamp
from postroom.agent.reports import snapshot
from postroom.errors import DefinitionError, MessageFailure, NotFound
from postroom.filters.explain import Explanation, explain
from postroom.filters.expression import Filter, Group
from postroom.message import Context, FileSlice
from postroom.messagebox.configuration import PortState, ReceiveLocation, hosts, receive_locations, send_ports
from postroom.messagebox.connection import Connection
from postroom.operations.enlistment import subscription_filter
from postroom.operations.messages import message_with_id
from postroom.operations.properties import deployed_properties
from postroom.operations.subscriptions import SubscriptionState, filters_of, list_subscriptions
from postroom.pipelines import load_pipeline
from postroom.system_properties import BTS


class Verdict(StrEnum):
    """What a subscriber does with the message."""

    RECEIVES = "receives it"
    SUSPENDS = "keeps it suspended"
    NOT_ENLISTED = "would, if enlisted"
    MISSES = "misses it"


@dataclass(frozen=True, kw_only=True)
class SubscriberExplanation:
    """One subscriber, met or missed."""

    name: str
    state: str
    host: str
    subscription_id: int | None
    directed_only: bool
    """The subscriber has no filter: only messages that name it reach it."""
    explanation: Explanation

    @property
    def verdict(self) -> Verdict:
        if not self.explanation.holds:
            return Verdict.MISSES
        if self.subscription_id is None:
            return Verdict.NOT_ENLISTED
        return Verdict.RECEIVES if self.state == "started" else Verdict.SUSPENDS


@dataclass(frozen=True, kw_only=True)
class MessageExplanation:
    """A message and every subscriber, those that receive it first, then the nearest misses."""

    title: str
    context: Context
    subscribers: tuple[SubscriberExplanation, ...]
    failure: MessageFailure | None = None
    """Why it does not even get to be published."""

    @property
    def accepted(self) -> bool:
        """Does anybody receive it (or keep it suspended)?"""
        return any(one.verdict in (Verdict.RECEIVES, Verdict.SUSPENDS) for one in self.subscribers)


def explain_message(
    connection: Connection, message_id: uuid.UUID, *, extra: Context | None = None
) -> MessageExplanation:
    """A stored message against the subscriptions of now; when it was published there may have been others.

    ``extra`` says what would happen if it were in the context, too."""
    message = message_with_id(connection, message_id)
    return explain_context(connection, _with(message.context, extra or Context()), title=f"Message {message_id}")


def explain_context(connection: Connection, context: Context, *, title: str) -> MessageExplanation:
    """A message that has this context."""
    return _explained(title, context, _known_subscribers(connection))


def explain_file(
    connection: Connection, path: Path, *, location: str | None = None, extra: Context | None = None
) -> Iterator[MessageExplanation]:
    """What a receive location would make of a file: each of its messages, or why it cannot be read.

    Nothing is published. ``extra`` is added to every context, in place of what the pipeline promotes."""
    where = _location(connection, location)
    try:
        body = FileSlice(path=path, length=path.stat().st_size)
    except OSError as error:
        raise NotFound(f"{path} cannot be read.", why=f"{error.strerror}.", hint="Give the path of a file.") from None
    interchange = Interchange(interchange_id=uuid.uuid4(), body=body)
    stamped = stamp(where, interchange)
    known = _known_subscribers(connection)
    for chunk in chunks_of(load_pipeline(where.pipeline), interchange, Progress()):
        if chunk.refusal is not None:
            yield _failed(path.name, stamped, chunk.refusal)
        for bad in chunk.failures:
            yield _failed(f"{path.name}, document {bad.number}", stamped, bad.failure)
        columns = value_columns(chunk.documents)
        for row in range(chunk.rows):
            context = snapshot(stamped, columns, row)
            title = f"{path.name}, document {context[BTS.InterchangeSequenceNumber]}"
            yield _explained(title, _with(context, extra or Context()), known)


def _failed(title: str, context: Context, failure: MessageFailure) -> MessageExplanation:
    return MessageExplanation(title=title, context=context, subscribers=(), failure=failure)


def _with(context: Context, extra: Context) -> Context:
    given = {**extra.promoted, **extra.written}
    promoted = {key: value for key, value in context.promoted.items() if key not in given}
    written = {key: value for key, value in context.written.items() if key not in given}
    return Context({**promoted, **extra.promoted}, {**written, **extra.written})


def _location(connection: Connection, name: str | None) -> ReceiveLocation:
    known = receive_locations(connection)
    found = [one for one in known if name is None or one.name == name]
    if len(found) == 1:
        return found[0]
    names = ", ".join(one.name for one in known) or "none; run postroom apply first"
    if found:
        raise DefinitionError(
            "There are several receive locations, and each may read the file in another way.",
            hint=f"Name one of them: {names}.",
        )
    what = "There is no receive location" if name is None else f"There is no receive location {name!r}"
    raise NotFound(f"{what}.", hint=f"The receive locations are: {names}.")


@dataclass(frozen=True, kw_only=True)
class _KnownSubscriber:
    name: str
    state: str
    host: str
    subscription_id: int | None
    filter: Filter


def _known_subscribers(connection: Connection) -> list[_KnownSubscriber]:
    """Whoever has a subscription, and send ports that could have one."""
    subscriptions = [one for one in list_subscriptions(connection) if one.state is not SubscriptionState.DISABLED]
    filters = filters_of(connection, subscriptions)
    enlisted = [
        _KnownSubscriber(
            name=one.service_name,
            state=one.state.name.lower(),
            host=one.host,
            subscription_id=one.subscription_id,
            filter=filters[one.subscription_id],
        )
        for one in subscriptions
    ]
    properties = deployed_properties(connection)
    host_names = {host.host_id: host.name for host in hosts(connection)}
    bound = [
        _KnownSubscriber(
            name=port.name,
            state="bound",
            host=host_names[port.host_id],
            subscription_id=None,
            filter=subscription_filter(port, properties),
        )
        for port in send_ports(connection)
        if port.state is PortState.BOUND
    ]
    return enlisted + bound


def _explained(title: str, context: Context, known: list[_KnownSubscriber]) -> MessageExplanation:
    order = list(Verdict)
    found = [_for_subscriber(one, context) for one in known]
    found.sort(key=lambda one: (order.index(one.verdict), one.explanation.distance, one.name))
    return MessageExplanation(title=title, context=context, subscribers=tuple(found))


def _for_subscriber(known: _KnownSubscriber, context: Context) -> SubscriberExplanation:
    groups = tuple(group for group in known.filter.groups if not _directs(group))
    # Every send port also subscribes to what is directed to it. For a message that is directed to nobody that group is
    # no near miss, and would only stand in the way.
    shown = known.filter if not groups or BTS.SPTransportID in context else Filter(groups)
    return SubscriberExplanation(
        name=known.name,
        state=known.state,
        host=known.host,
        subscription_id=known.subscription_id,
        directed_only=not groups,
        explanation=explain(shown, context.promoted, context.written),
    )


def _directs(group: Group) -> bool:
    return len(group) == 1 and group[0].property.key == BTS.SPTransportID.key
