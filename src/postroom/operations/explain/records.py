"""The records of explanations: what `postroom explain` and `postroom subscription` write as JSON. Long texts and large
filters are cut off."""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from postroom.filters.explain import Explanation, PredicateExplanation, Reason
from postroom.filters.expression import Filter
from postroom.filters.text import format_filter, format_predicate
from postroom.operations.explain.explanation import (
    FailureHandling,
    MessageExplanation,
    SubscriberExplanation,
    Verdict,
)
from postroom.operations.explain.matching_messages import ComparedMessage, MatchingMessages
from postroom.operations.explain.subscribers import Startable
from postroom.operations.properties import (
    PropertyListing,
    RequiredProperty,
    list_context,
    list_required,
    truncate,
)
from postroom.operations.records import extend, to_row
from postroom.values import Value

_MAX_GROUPS = 100


@dataclass(frozen=True, kw_only=True)
class PredicateRecord:
    """A predicate with the value that it was compared with."""

    predicate: str
    holds: bool
    reason: Reason
    wanted: Value | None
    met: Value | None
    words: str


@dataclass(frozen=True, kw_only=True)
class GroupRecord:
    """One AND-group of a filter."""

    holds: bool
    predicates: Sequence[PredicateRecord]


@dataclass(frozen=True, kw_only=True)
class ComparisonRecord:
    """A filter compared with a message, the nearest groups first."""

    matches: bool
    distance: float
    groups: Sequence[GroupRecord]
    groups_in_all: int


@dataclass(frozen=True, kw_only=True)
class FilterRecord(ComparisonRecord):
    """The comparison with a filter that belongs to no subscription."""

    filter: str


@dataclass(frozen=True, kw_only=True)
class SubscriberRecord(ComparisonRecord):
    """The comparison with the filter of a subscriber, and the verdict."""

    name: str
    verdict: Verdict
    state: str
    host: str
    subscription_id: int | None
    unmet: Sequence[RequiredProperty]
    not_started: Sequence[Startable]


@dataclass(frozen=True, kw_only=True)
class MessageRecord:
    """A message with its subscribers. ``end`` is what happens to it if it fails or has no subscriber."""

    title: str
    accepted: bool
    failure: str | None
    end: FailureHandling | None
    context: Sequence[PropertyListing]
    requires: Sequence[RequiredProperty]
    counts: Mapping[Verdict, int]
    not_shown: Mapping[Verdict, int]
    waiting_instances_unseen: bool
    subscribers: Sequence[SubscriberRecord]


@dataclass(frozen=True, kw_only=True)
class MatchRecord:
    """A stored message that was compared with a filter."""

    message_id: uuid.UUID
    published_at: datetime
    message_type: str | None
    authorised: bool


@dataclass(frozen=True, kw_only=True)
class MissRecord(MatchRecord):
    """A stored message that does not match, with the predicates that fail."""

    fails: Sequence[str]


@dataclass(frozen=True, kw_only=True)
class MatchesRecord:
    """The stored messages that a filter matches, or the nearest misses."""

    filter: str
    looked_at: int
    matching: int
    messages: Sequence[MatchRecord]
    nearest: Sequence[MissRecord]


def record_message(explained: MessageExplanation) -> MessageRecord:
    """Return the record of a message with its subscribers."""
    return MessageRecord(
        title=explained.title,
        accepted=explained.accepted,
        failure=None if explained.failure is None else explained.failure.what,
        end=explained.failure_handling,
        context=list_context(explained.context),
        requires=list_required(explained.context.predicates),
        counts=explained.counts,
        not_shown=explained.unlisted_counts,
        waiting_instances_unseen=explained.has_unreadable_instances,
        subscribers=[record_subscriber(subscriber) for subscriber in explained.subscribers],
    )


def record_subscriber(subscriber: SubscriberExplanation) -> SubscriberRecord:
    """Return the record of one subscriber with its filter."""
    return extend(
        _record_comparison(subscriber.explanation),
        SubscriberRecord,
        name=subscriber.name,
        verdict=subscriber.verdict,
        state=subscriber.state,
        host=subscriber.host,
        subscription_id=subscriber.subscription_id,
        unmet=list_required(subscriber.unmet),
        not_started=subscriber.not_started,
    )


def record_filter(filter: Filter, explanation: Explanation) -> FilterRecord:
    """Return the record of a filter that belongs to no subscription."""
    return extend(_record_comparison(explanation), FilterRecord, filter=format_filter(filter))


def record_matches(found: MatchingMessages) -> MatchesRecord:
    """Return the record of the matches and the nearest misses."""
    return MatchesRecord(
        filter=format_filter(found.filter),
        looked_at=found.scanned,
        matching=found.matching,
        messages=[_record_match(message) for message in found.messages],
        nearest=[extend(_record_match(message), MissRecord, fails=message.failures) for message in found.nearest],
    )


def _record_match(message: ComparedMessage) -> MatchRecord:
    row = to_row(message)
    del row["explanation"]
    return MatchRecord(**row)


def _record_comparison(explanation: Explanation) -> ComparisonRecord:
    nearest = sorted(explanation.groups, key=lambda group: group.distance)[:_MAX_GROUPS]
    return ComparisonRecord(
        matches=explanation.holds,
        distance=explanation.distance,
        groups=[
            GroupRecord(holds=group.holds, predicates=[_record_predicate(one) for one in group.predicates])
            for group in nearest
        ],
        groups_in_all=len(explanation.groups),
    )


def _record_predicate(predicate: PredicateExplanation) -> PredicateRecord:
    return PredicateRecord(
        predicate=format_predicate(predicate.predicate),
        holds=predicate.holds,
        reason=predicate.reason,
        wanted=predicate.predicate.value,
        met=truncate(predicate.value),
        words=truncate(predicate.description),
    )
