"""Convert explanations to the JSON that `postroom explain` and `postroom subscription test` write."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from postroom.filters.authorisation import MessagePredicate
    from postroom.filters.explain import Explanation, PredicateExplanation
    from postroom.message import Context
    from postroom.operations.explain.explanation import MessageExplanation, SubscriberExplanation

_MAX_GROUPS = 100
_MAX_CHARACTERS = 1_000


def explanation_to_json(explained: MessageExplanation) -> dict[str, Any]:
    """Return one message with its subscribers."""
    from postroom.cli.rendering.explanation_text import count_hidden

    return {
        "title": explained.title,
        "accepted": explained.accepted,
        "failure": None if explained.failure is None else explained.failure.what,
        "end": explained.failure_handling,
        "context": context_to_json(explained.context),
        "requires": _predicates_to_json(explained.context.predicates),
        "counts": {verdict.value: count for verdict, count in explained.counts.items()},
        "not_shown": count_hidden(explained),
        "waiting_instances_unseen": explained.has_unreadable_instances,
        "subscribers": [subscriber_to_json(subscriber) for subscriber in explained.subscribers],
    }


def subscriber_to_json(subscriber: SubscriberExplanation) -> dict[str, Any]:
    """Return one subscriber with its filter."""
    return {
        "name": subscriber.name,
        "verdict": subscriber.verdict.value,
        "matches": subscriber.explanation.holds,
        "state": subscriber.state,
        "host": subscriber.host,
        "subscription_id": subscriber.subscription_id,
        "unmet": _predicates_to_json(subscriber.unmet),
        "not_started": [service._asdict() for service in subscriber.not_started],
        **filter_to_json(subscriber.explanation),
    }


def filter_to_json(explanation: Explanation) -> dict[str, Any]:
    """Return the groups of a filter, the nearest first. A large filter is cut off."""
    nearest = sorted(explanation.groups, key=lambda group: group.distance)[:_MAX_GROUPS]
    return {
        "distance": explanation.distance,
        "groups": [
            {"holds": group.holds, "predicates": [_predicate_to_json(predicate) for predicate in group.predicates]}
            for group in nearest
        ],
        "groups_in_all": len(explanation.groups),
    }


def context_to_json(context: Context) -> list[dict[str, Any]]:
    """Return the properties of a context, promoted properties first. A long text is cut off and gets its length."""
    rows = []
    for prop in context:
        value = context[prop]
        row = {"property": prop.dotted_name, "value": value, "promoted": context.is_promoted(prop)}
        if isinstance(value, str) and len(value) > _MAX_CHARACTERS:
            row |= {"value": value[:_MAX_CHARACTERS] + "…", "length": len(value)}
        rows.append(row)
    return rows


def _predicate_to_json(predicate: PredicateExplanation) -> dict[str, Any]:
    from postroom.filters.text import format_predicate

    return {
        "predicate": format_predicate(predicate.predicate),
        "holds": predicate.holds,
        "reason": predicate.reason.value,
        "wanted": predicate.predicate.value,
        "met": _truncate(predicate.value),
        "words": _truncate(predicate.description),
    }


def _predicates_to_json(predicates: Iterable[MessagePredicate]) -> list[dict[str, Any]]:
    from postroom.properties import dotted_name, split_key

    rows = [{"property": dotted_name(*split_key(key)), "value": value} for key, value in predicates]
    return sorted(rows, key=lambda row: (row["property"], str(row["value"])))


def _truncate(value: object) -> object:
    return value[:_MAX_CHARACTERS] + "…" if isinstance(value, str) and len(value) > _MAX_CHARACTERS else value
