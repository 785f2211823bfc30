"""Why a message goes where it goes: every subscriber, predicate by predicate, the nearest misses first.

    explain_message(connection, message_id)[0].subscribers[0].explanation.nearest

Send ports that are not enlisted are there too, by the filter that they would have. Of very many subscribers all are
compared and counted, and the first and the nearest are kept.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path

from postroom.agent.error_reports import is_error_report
from postroom.errors import MessageFailure
from postroom.filters.authorisation import MessagePredicate, find_unmet, may_receive
from postroom.filters.explain import Explanation, distance, explain
from postroom.filters.expression import Filter
from postroom.message import Context
from postroom.messagebox.configuration import ReceiveLocation
from postroom.messagebox.connection import Connection
from postroom.operations.explain.candidates import (
    Candidate,
    add_properties,
    build_error_message,
    build_interchange,
    find_location,
    read_candidates,
)
from postroom.operations.explain.instance_subscribers import find_waiting_instances
from postroom.operations.explain.subscribers import Startable, Subscriber, is_directed, read_subscribers
from postroom.operations.explain.unread_messages import unread
from postroom.operations.messages import StoredMessage, get_message
from postroom.operations.properties import read_deployed_properties
from postroom.operations.redaction import read_sensitive_keys, redact_context, redact_explanation, redact_predicates
from postroom.system_properties import ErrorReport


class End(StrEnum):
    """What becomes of a message that is not published, or that nobody receives."""

    DROPPED = "dropped"
    SUSPENDED = "suspended"
    ROUTED = "routed as an error message"


class Verdict(StrEnum):
    """What a subscriber does with the message."""

    RECEIVES = "receives it"
    SUSPENDS = "keeps it suspended"
    NOT_AUTHORISED = "may not receive it"
    NOT_ENLISTED = "would, if enlisted"
    MISSES = "misses it"


_TAKEN = (Verdict.RECEIVES, Verdict.SUSPENDS)


@dataclass(frozen=True, kw_only=True)
class Limits:
    """How many subscribers an explanation keeps: of each kind that takes the message, and of those that miss it."""

    receivers: int = 100
    misses: int = 20

    def of(self, verdict: Verdict) -> int:
        return self.misses if verdict is Verdict.MISSES else self.receivers


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
    verdict: Verdict
    not_started: tuple[Startable, ...] = ()
    """What has to be started before it receives anything."""
    unmet: tuple[MessagePredicate, ...] = ()
    """What the message asks of its receivers and this one's host cannot show."""


@dataclass(frozen=True, kw_only=True)
class MessageExplanation:
    """A message and its subscribers, those that receive it first, then the nearest misses."""

    title: str
    context: Context
    subscribers: tuple[SubscriberExplanation, ...] = ()
    counts: Mapping[Verdict, int] = field(default_factory=dict)
    """How many there are of each kind, also of those that are not kept."""
    failure: MessageFailure | None = None
    """Why it does not even get to be published."""
    end: End | None = None
    """What becomes of it, if it is not published, or nobody takes it."""
    is_error: bool = False
    """It is the error message about the one before it."""
    has_unreadable_instances: bool = False
    """Instances may wait for it, and the login may not see for what they wait."""

    @property
    def accepted(self) -> bool:
        """Does anybody receive it (or keep it suspended)?"""
        return any(self.counts.get(verdict) for verdict in _TAKEN)


def explain_message(
    connection: Connection,
    message_id: uuid.UUID,
    *,
    extra: Context | None = None,
    documents: int | None = None,
    limits: Limits | None = None,
) -> list[MessageExplanation]:
    """A stored message against the subscriptions of now; when it was published there may have been others.

    One that was suspended before its pipeline had read it has no properties of its own yet: it is read as it would be
    if it were resumed now, and gives the first ``documents`` that come of it. ``extra`` says what would happen if it
    were in the context, too."""
    message = get_message(connection, message_id)
    pending = unread(connection, message)
    if pending is None:
        context = add_properties(message.context, extra or Context())
        return [explain_context(connection, context, title=_title(message), limits=limits)]
    if pending.location is None:
        shown = redact_context(message.context, read_sensitive_keys(connection))
        return [MessageExplanation(title=_title(message), context=shown, failure=pending.nowhere)]
    title = f"{_title(message)}, as {pending.location.name} reads it now"
    found = read_candidates(connection, pending.location, pending.interchange, title, extra or Context())
    return _followed(connection, list(islice(found, documents)), pending.location, limits or Limits())


def explain_context(
    connection: Connection, context: Context, *, title: str, limits: Limits | None = None
) -> MessageExplanation:
    """A message that has this context."""
    [explained] = _explained(connection, [Candidate(title=title, context=context)], limits or Limits())
    return explained


def explain_file(
    connection: Connection,
    path: Path,
    *,
    location: str | None = None,
    extra: Context | None = None,
    documents: int | None = None,
    limits: Limits | None = None,
) -> list[MessageExplanation]:
    """What a receive location would make of a file: its messages, or why one cannot be read; the first ``documents``.

    Nothing is published. ``extra`` is added to every context, in place of what the pipeline promotes."""
    where = find_location(connection, location)
    found = read_candidates(connection, where, build_interchange(where, path), path.name, extra or Context())
    return _followed(connection, list(islice(found, documents)), where, limits or Limits())


def describe_ignored_file(connection: Connection, path: Path, location: str | None = None) -> str:
    """Why a receive location would leave a file of this name where it is; empty if it would not."""
    where = find_location(connection, location)
    watched = where.adapter.watched_folder
    if watched is None or watched.takes(path.name):
        return ""
    return f"{where.name} would leave {path.name} where it is: it takes {watched.pattern}."


def explain_subscriber(subscriber: Subscriber, context: Context) -> SubscriberExplanation:
    """One subscriber alone."""
    groups = subscriber.groups_for(directed=is_directed(context))
    explanation = explain(Filter(groups), context.promoted, context.written)
    return SubscriberExplanation(
        name=subscriber.name,
        state=subscriber.state,
        host=subscriber.host,
        subscription_id=subscriber.subscription_id,
        directed_only=not subscriber.own_groups,
        explanation=explanation,
        verdict=_verdict(subscriber, context, holds=explanation.holds),
        not_started=subscriber.not_started,
        unmet=tuple(find_unmet(context.predicates, subscriber.shown)),
    )


def _title(message: StoredMessage) -> str:
    if not is_error_report(message.context):
        return f"Message {message.message_id}"
    about = message.context.get(ErrorReport.FailureMessageID)
    what = str(message.context.get(ErrorReport.Description, "")).partition("\n")[0]
    return f"Error message {message.message_id} about message {about}: {what}"


def _followed(
    connection: Connection, given: Sequence[Candidate], where: ReceiveLocation, limits: Limits
) -> list[MessageExplanation]:
    """What a location takes in, each with what becomes of it. What fails, and what nobody receives, is dropped,
    suspended, or followed by the error message about it: if its receive port routes failures and somebody receives
    that (FMR-09)."""
    explained = _explained(connection, given, limits)
    failed = [number for number, one in enumerate(explained) if not one.accepted and not given[number].is_dropped]
    errors: dict[int, MessageExplanation] = {}
    if where.route_failures and failed:
        about = [build_error_message(where, given[number]) for number in failed]
        errors = dict(zip(failed, _explained(connection, about, limits), strict=True))
    followed: list[MessageExplanation] = []
    for number, one in enumerate(explained):
        error = errors.get(number)
        if given[number].is_dropped:
            one = replace(one, end=End.DROPPED)
        elif number in failed:
            one = replace(one, end=End.ROUTED if error is not None and error.accepted else End.SUSPENDED)
        followed += [one] if error is None else [one, replace(error, is_error=True)]
    return followed


def _explained(connection: Connection, given: Sequence[Candidate], limits: Limits) -> list[MessageExplanation]:
    """All messages in one pass over the subscribers. What is said in words is said of those that are kept."""
    nearest = [_Nearest(one.context, limits) for one in given]
    properties = read_deployed_properties(connection)
    unreadable: set[int] = set()
    if any(one.failure is None for one in given):
        for batch in read_subscribers(connection, properties):
            for subscriber in batch:
                for each, one in zip(nearest, given, strict=True):
                    if one.failure is None:
                        each.consider(subscriber)
        waiting = find_waiting_instances(connection, [one.context for one in given], properties)
        for number, (each, one, instances) in enumerate(zip(nearest, given, waiting, strict=True)):
            if one.failure is None and instances is None:
                unreadable.add(number)
            for subscriber in instances or () if one.failure is None else ():
                each.consider(subscriber)
    hidden = read_sensitive_keys(connection)
    return [
        MessageExplanation(
            title=one.title,
            context=redact_context(one.context, hidden),
            subscribers=tuple(
                explain_subscriber_redacted(subscriber.as_written(properties), one.context, hidden)
                for subscriber in each.kept()
            ),
            counts=each.counts,
            failure=one.failure,
            has_unreadable_instances=number in unreadable,
        )
        for number, (each, one) in enumerate(zip(nearest, given, strict=True))
    ]


def explain_subscriber_redacted(
    subscriber: Subscriber, context: Context, hidden: frozenset[str]
) -> SubscriberExplanation:
    """One subscriber alone, as it may be shown; ``hidden`` are the keys of sensitive properties."""
    one = explain_subscriber(subscriber, context)
    if not hidden:
        return one
    return replace(
        one,
        explanation=redact_explanation(one.explanation, hidden, waiting=subscriber.waiting),
        unmet=tuple(redact_predicates(one.unmet, hidden)),
    )


_Ranked = tuple[float, str, int, Subscriber]


class _Nearest:
    """The first subscribers of each kind for one message, out of however many come."""

    def __init__(self, context: Context, limits: Limits) -> None:
        self.counts: Counter[Verdict] = Counter()
        self._context = context
        self._directed = is_directed(context)
        self._limits = limits
        self._kept: dict[Verdict, list[_Ranked]] = {verdict: [] for verdict in Verdict}

    def consider(self, subscriber: Subscriber) -> None:
        promoted, written = self._context.promoted, self._context.written
        far = distance(subscriber.groups_for(directed=self._directed), promoted, written)
        verdict = _verdict(subscriber, self._context, holds=not far)
        self.counts[verdict] += 1
        kept = self._kept[verdict]
        kept.append((far, subscriber.name, self.counts[verdict], subscriber))
        if len(kept) > 2 * self._limits.of(verdict) + 1_000:
            self._cut(verdict)

    def kept(self) -> Iterator[Subscriber]:
        for verdict in Verdict:
            self._cut(verdict)
            yield from (subscriber for *_, subscriber in self._kept[verdict])

    def _cut(self, verdict: Verdict) -> None:
        # The number in between keeps subscribers that are equally near and of one name from being compared themselves.
        self._kept[verdict] = sorted(self._kept[verdict])[: self._limits.of(verdict)]


def _verdict(subscriber: Subscriber, context: Context, *, holds: bool) -> Verdict:
    if not holds:
        return Verdict.MISSES
    if not may_receive(context.predicates, subscriber.shown):
        return Verdict.NOT_AUTHORISED
    if subscriber.subscription_id is None:
        return Verdict.NOT_ENLISTED
    return Verdict.RECEIVES if subscriber.state == "started" else Verdict.SUSPENDS
