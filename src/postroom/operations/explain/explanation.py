"""Explain where a message is routed and why: every subscriber, predicate by predicate, the nearest misses first.

    explain_message(connection, message_id)[0].subscribers[0].explanation.nearest

Send ports that are not enlisted are explained by the filter that they would have. All subscribers are compared and
counted; a limited number is listed.
"""

from __future__ import annotations

import uuid
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import islice
from pathlib import Path

from postroom.agent.error_messages import is_error_report
from postroom.agent.streaming.suspended_context import missing_location_failure
from postroom.errors import MessageFailure
from postroom.filters.authorisation import MessagePredicate, find_unmet, may_receive
from postroom.filters.explain import Explanation, distance, explain
from postroom.filters.expression import Filter
from postroom.message import Context
from postroom.messagebox.configuration.properties import read_deployed_properties, read_sensitive_keys
from postroom.messagebox.connection import Connection
from postroom.messagebox.storage.spool import StoredMessage, get_message
from postroom.operations.explain.candidates import (
    Candidate,
    add_properties,
    build_error_message,
    build_interchange,
    find_location,
    find_unread,
    read_candidates,
)
from postroom.operations.explain.instance_subscribers import find_waiting_instances
from postroom.operations.explain.subscribers import (
    PossibleSubscriber,
    Startable,
    find_subscriber,
    is_directed,
    read_subscribers,
    select_groups,
)
from postroom.operations.redaction import redact_context, redact_explanation, redact_predicates
from postroom.ports.receive_locations import ReceiveLocation
from postroom.system_properties import ErrorReport


class FailureHandling(StrEnum):
    """What a receive port does with a message that failed or has no subscriber."""

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


_ACCEPTING = (Verdict.RECEIVES, Verdict.SUSPENDS)


@dataclass(frozen=True, kw_only=True)
class ListingLimits:
    """The maximum number of listed subscribers: for each verdict that matches the message, and for misses."""

    receivers: int = 100
    misses: int = 20

    def get_limit(self, verdict: Verdict) -> int:
        """Return the maximum number of subscribers with this verdict."""
        return self.misses if verdict is Verdict.MISSES else self.receivers


@dataclass(frozen=True, kw_only=True)
class SubscriberExplanation:
    """One subscriber with its verdict."""

    name: str
    state: str
    host: str
    subscription_id: int | None
    directed_only: bool
    """The subscriber has no filter and receives only messages that are directed to it."""
    explanation: Explanation
    verdict: Verdict
    not_started: tuple[Startable, ...] = ()
    """The port and the group that have to be started before it receives messages."""
    unmet: tuple[MessagePredicate, ...] = ()
    """The predicates of the message that the subscriber's host does not meet."""


@dataclass(frozen=True, kw_only=True)
class MessageExplanation:
    """A message with its subscribers: those that receive it first, then the nearest misses."""

    title: str
    context: Context
    subscribers: tuple[SubscriberExplanation, ...] = ()
    counts: Mapping[Verdict, int] = field(default_factory=dict)
    """The number of subscribers by verdict, including those that are not listed."""
    failure: MessageFailure | None = None
    """Why the message would not be published."""
    failure_handling: FailureHandling | None = None
    """What happens to the message if it fails or has no subscriber."""
    is_error: bool = False
    """It is the error message about the previous message."""
    has_unreadable_instances: bool = False
    """Instances may wait for it, but the login may not read their correlation values."""

    @property
    def accepted(self) -> bool:
        """True if a subscriber receives the message or keeps it suspended."""
        return any(self.counts.get(verdict) for verdict in _ACCEPTING)

    @property
    def unlisted_counts(self) -> dict[Verdict, int]:
        """The number of subscribers that are not listed, by verdict."""
        listed = Counter(subscriber.verdict for subscriber in self.subscribers)
        return {verdict: count - listed[verdict] for verdict, count in self.counts.items() if count > listed[verdict]}


def explain_message(
    connection: Connection,
    message_id: uuid.UUID,
    *,
    extra: Context | None = None,
    documents: int | None = None,
    limits: ListingLimits | None = None,
) -> list[MessageExplanation]:
    """Explain a stored message by the current subscriptions, which may differ from those at its publication.

    A message that was suspended before its pipeline read it has no properties yet. It is read as a resume would read
    it, and its first ``documents`` are explained. The properties in ``extra`` are added to the context."""
    message = get_message(connection, message_id)
    unread = find_unread(connection, message)
    if unread is None:
        context = add_properties(message.context, extra or Context())
        return [explain_context(connection, context, title=_format_title(message), limits=limits)]
    if unread.location is None:
        redacted = redact_context(message.context, read_sensitive_keys(connection))
        title = _format_title(message)
        return [MessageExplanation(title=title, context=redacted, failure=missing_location_failure())]
    title = f"{_format_title(message)}, as {unread.location.name} reads it now"
    candidates = read_candidates(connection, unread.location, unread.interchange, title, extra or Context())
    return _explain_received(
        connection, list(islice(candidates, documents)), unread.location, limits or ListingLimits()
    )


def explain_context(
    connection: Connection, context: Context, *, title: str, limits: ListingLimits | None = None
) -> MessageExplanation:
    """Explain a message with this context."""
    [explained] = _explain_candidates(connection, [Candidate(title=title, context=context)], limits or ListingLimits())
    return explained


def explain_file(
    connection: Connection,
    path: Path,
    *,
    location: str | None = None,
    extra: Context | None = None,
    documents: int | None = None,
    limits: ListingLimits | None = None,
) -> list[MessageExplanation]:
    """Explain the first ``documents`` that a receive location would make of a file. Nothing is published.

    The properties in ``extra`` are added to every context and replace those that the pipeline promotes."""
    found = find_location(connection, location)
    candidates = read_candidates(connection, found, build_interchange(found, path), path.name, extra or Context())
    return _explain_received(connection, list(islice(candidates, documents)), found, limits or ListingLimits())


def describe_ignored_file(connection: Connection, path: Path, location: str | None = None) -> str:
    """Return why a receive location would ignore a file of this name, or an empty text if it would receive it."""
    found = find_location(connection, location)
    watched = found.watched_folder
    if watched is None or watched.matches(path.name):
        return ""
    return f"{found.name} would ignore {path.name}: it receives {watched.pattern}."


def _explain_subscriber(subscriber: PossibleSubscriber, context: Context) -> SubscriberExplanation:
    """Explain a message for one subscriber."""
    groups = select_groups(subscriber.filter, directed=is_directed(context))
    explanation = explain(Filter(groups), context.promoted, context.written)
    return SubscriberExplanation(
        name=subscriber.name,
        state=subscriber.state,
        host=subscriber.host,
        subscription_id=subscriber.subscription_id,
        directed_only=not subscriber.own_groups,
        explanation=explanation,
        verdict=_decide_verdict(subscriber, context, holds=explanation.holds),
        not_started=subscriber.not_started,
        unmet=tuple(find_unmet(context.predicates, subscriber.host_properties)),
    )


def _format_title(message: StoredMessage) -> str:
    if not is_error_report(message.context):
        return f"Message {message.message_id}"
    about = message.context.get(ErrorReport.FailureMessageID)
    what = str(message.context.get(ErrorReport.Description, "")).partition("\n")[0]
    return f"Error message {message.message_id} about message {about}: {what}"


def _explain_received(
    connection: Connection, candidates: Sequence[Candidate], location: ReceiveLocation, limits: ListingLimits
) -> list[MessageExplanation]:
    """Explain the messages of a location, and what happens to a message that fails or has no subscriber.

    It is dropped or suspended. If the receive port routes failures, its error message follows it in the result, and the
    message is routed if a subscriber receives the error message (FMR-09)."""
    explained = _explain_candidates(connection, candidates, limits)
    failed = [
        number
        for number, explanation in enumerate(explained)
        if not explanation.accepted and not candidates[number].is_dropped
    ]
    errors: dict[int, MessageExplanation] = {}
    if location.route_failures and failed:
        reports = [build_error_message(location, candidates[number]) for number in failed]
        errors = dict(zip(failed, _explain_candidates(connection, reports, limits), strict=True))
    result: list[MessageExplanation] = []
    for number, explanation in enumerate(explained):
        error = errors.get(number)
        if candidates[number].is_dropped:
            explanation = replace(explanation, failure_handling=FailureHandling.DROPPED)
        elif number in failed:
            routed = error is not None and error.accepted
            handling = FailureHandling.ROUTED if routed else FailureHandling.SUSPENDED
            explanation = replace(explanation, failure_handling=handling)
        result += [explanation] if error is None else [explanation, replace(error, is_error=True)]
    return result


def _explain_candidates(
    connection: Connection, candidates: Sequence[Candidate], limits: ListingLimits
) -> list[MessageExplanation]:
    """Explain all messages in one pass over the subscribers."""
    rankings = [_Ranking(candidate.context, limits) for candidate in candidates]
    properties = read_deployed_properties(connection)
    unreadable: set[int] = set()
    if any(candidate.failure is None for candidate in candidates):
        for batch in read_subscribers(connection, properties):
            for subscriber in batch:
                for ranking, candidate in zip(rankings, candidates, strict=True):
                    if candidate.failure is None:
                        ranking.add(subscriber)
        waiting = find_waiting_instances(connection, [candidate.context for candidate in candidates], properties)
        for number, (ranking, candidate, instances) in enumerate(zip(rankings, candidates, waiting, strict=True)):
            if candidate.failure is None and instances is None:
                unreadable.add(number)
            for subscriber in instances or () if candidate.failure is None else ():
                ranking.add(subscriber)
    sensitive = read_sensitive_keys(connection)
    return [
        MessageExplanation(
            title=candidate.title,
            context=redact_context(candidate.context, sensitive),
            subscribers=tuple(
                _explain_subscriber_redacted(subscriber.restore_written_order(properties), candidate.context, sensitive)
                for subscriber in ranking.list_nearest()
            ),
            counts=ranking.counts,
            failure=candidate.failure,
            has_unreadable_instances=number in unreadable,
        )
        for number, (ranking, candidate) in enumerate(zip(rankings, candidates, strict=True))
    ]


def explain_subscription(connection: Connection, id_or_name: str, context: Context) -> SubscriberExplanation:
    """Explain a message for the subscription with this id or of the service with this name, or for a send port that is
    not enlisted.

    The properties are the caller's own input. Only the filter of an instance may have values of messages, so only
    those are hidden."""
    subscriber = find_subscriber(connection, id_or_name, read_deployed_properties(connection))
    hidden = read_sensitive_keys(connection) if subscriber.is_instance else frozenset[str]()
    return _explain_subscriber_redacted(subscriber, context, hidden)


def _explain_subscriber_redacted(
    subscriber: PossibleSubscriber, context: Context, sensitive: frozenset[str]
) -> SubscriberExplanation:
    """Explain a message for one subscriber with the values of the ``sensitive`` properties hidden."""
    explained = _explain_subscriber(subscriber, context)
    if not sensitive:
        return explained
    return replace(
        explained,
        explanation=redact_explanation(explained.explanation, sensitive, waiting=subscriber.is_instance),
        unmet=tuple(redact_predicates(explained.unmet, sensitive)),
    )


_Ranked = tuple[float, str, int, PossibleSubscriber]


class _Ranking:
    """Counts the subscribers of one message and keeps the nearest of each verdict."""

    def __init__(self, context: Context, limits: ListingLimits) -> None:
        self.counts: Counter[Verdict] = Counter()
        self._context = context
        self._directed = is_directed(context)
        self._limits = limits
        self._nearest: dict[Verdict, list[_Ranked]] = {verdict: [] for verdict in Verdict}

    def add(self, subscriber: PossibleSubscriber) -> None:
        """Compare the message with a subscriber."""
        promoted, written = self._context.promoted, self._context.written
        missed_by = distance(select_groups(subscriber.filter, directed=self._directed), promoted, written)
        verdict = _decide_verdict(subscriber, self._context, holds=not missed_by)
        self.counts[verdict] += 1
        nearest = self._nearest[verdict]
        nearest.append((missed_by, subscriber.name, self.counts[verdict], subscriber))
        if len(nearest) > 2 * self._limits.get_limit(verdict) + 1_000:
            self._truncate(verdict)

    def list_nearest(self) -> Iterator[PossibleSubscriber]:
        """Yield the nearest subscribers of each verdict."""
        for verdict in Verdict:
            self._truncate(verdict)
            yield from (subscriber for *_, subscriber in self._nearest[verdict])

    def _truncate(self, verdict: Verdict) -> None:
        # The number in the tuple is unique, so that subscribers, which have no order, are never compared.
        self._nearest[verdict] = sorted(self._nearest[verdict])[: self._limits.get_limit(verdict)]


def _decide_verdict(subscriber: PossibleSubscriber, context: Context, *, holds: bool) -> Verdict:
    if not holds:
        return Verdict.MISSES
    if not may_receive(context.predicates, subscriber.host_properties):
        return Verdict.NOT_AUTHORISED
    if subscriber.subscription_id is None:
        return Verdict.NOT_ENLISTED
    return Verdict.RECEIVES if subscriber.state == "started" else Verdict.SUSPENDS
