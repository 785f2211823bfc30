"""Explain why a message matches a filter or not: every predicate, with the value that it was compared with.

    explanation = explain(Region == "EU", promoted={"Orders#Region": "US"}, written={})
    explanation.groups[0].predicates[0].description      # "Orders.Region == 'EU' fails: the value is 'US'"

The distance measures how close a message is to a match, so that the closest subscriptions can be shown first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from postroom.filters.evaluate import predicate_holds
from postroom.filters.expression import Filter, Group, Predicate
from postroom.filters.text import format_predicate, format_value
from postroom.values import Value


class Reason(StrEnum):
    """Why a predicate holds or fails."""

    HOLDS = "holds"
    NOT_PROMOTED = "written but not promoted"
    DIFFERS = "value differs"
    TYPE_DIFFERS = "type differs"
    MISSING = "missing"


#: The distance of a failed predicate. A property that the message has in some form is closer than a missing one.
_DISTANCE = {
    Reason.HOLDS: 0,
    Reason.NOT_PROMOTED: 1,
    Reason.DIFFERS: 2,
    Reason.TYPE_DIFFERS: 2,
    Reason.MISSING: 3,
}


@dataclass(frozen=True, kw_only=True)
class PredicateExplanation:
    """One predicate and the value it was compared with. ``value`` is None if the message does not have the property."""

    predicate: Predicate
    reason: Reason
    value: Value | None

    @property
    def holds(self) -> bool:
        return self.reason is Reason.HOLDS

    @property
    def description(self) -> str:
        """The result in one line: ``Orders.Region == 'EU' fails: the value is 'US'``."""
        text = format_predicate(self.predicate)
        value = None if self.value is None else format_value(self.value)
        match self.reason:
            case Reason.HOLDS:
                return f"{text} holds: the value is {value}"
            case Reason.NOT_PROMOTED:
                return f"{text} fails: the property is written ({value}) but not promoted"
            case Reason.DIFFERS:
                return f"{text} fails: the value is {value}"
            case Reason.TYPE_DIFFERS:
                wanted = self.predicate.property.value_type.python_type.__name__
                return f"{text} fails: the value is {value}, of type {type(self.value).__name__} and not {wanted}"
            case Reason.MISSING:
                return f"{text} fails: the message has no such property"


@dataclass(frozen=True, kw_only=True)
class GroupExplanation:
    """One AND-group. It holds if all its predicates hold."""

    predicates: tuple[PredicateExplanation, ...]

    @property
    def holds(self) -> bool:
        return all(predicate.holds for predicate in self.predicates)

    @property
    def distance(self) -> float:
        """0 for a group that holds. Otherwise the sum of the distances of its failed predicates, plus their share: of
        two groups that fail by one value each, the one with more predicates is closer."""
        failed = [predicate for predicate in self.predicates if not predicate.holds]
        return sum(_DISTANCE[each.reason] for each in failed) + len(failed) / len(self.predicates)


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A filter compared with a message. The filter matches if one of its groups holds."""

    groups: tuple[GroupExplanation, ...]

    @property
    def holds(self) -> bool:
        return any(group.holds for group in self.groups)

    @property
    def distance(self) -> float:
        """The distance of the closest group. Sorted by it, the closest misses follow the matches."""
        return min(group.distance for group in self.groups)

    @property
    def nearest(self) -> GroupExplanation:
        """The closest group."""
        return min(self.groups, key=lambda group: group.distance)


def explain(filter: Filter, promoted: Mapping[str, Value], written: Mapping[str, Value]) -> Explanation:
    """Explain the result of ``evaluate.matches``, predicate by predicate. Values are given by property key."""
    values = {**written, **promoted}

    def explain_predicate(predicate: Predicate) -> PredicateExplanation:
        reason = _find_reason(predicate, promoted, written)
        return PredicateExplanation(predicate=predicate, reason=reason, value=values.get(predicate.property.key))

    return Explanation(
        groups=tuple(GroupExplanation(predicates=tuple(map(explain_predicate, group))) for group in filter.groups)
    )


def distance(groups: Iterable[Group], promoted: Mapping[str, Value], written: Mapping[str, Value]) -> float:
    """Return the distance that ``explain`` computes, faster: to find the closest of very many filters."""
    nearest = inf
    for group in groups:
        steps = [_DISTANCE[_find_reason(predicate, promoted, written)] for predicate in group]
        failed = len(steps) - steps.count(0)
        nearest = min(nearest, sum(steps) + failed / len(steps))
    return nearest


def _find_reason(predicate: Predicate, promoted: Mapping[str, Value], written: Mapping[str, Value]) -> Reason:
    if predicate_holds(predicate, promoted):
        return Reason.HOLDS
    key = predicate.property.key
    if key in promoted:
        same_type = type(promoted[key]) is predicate.property.value_type.python_type
        return Reason.DIFFERS if same_type else Reason.TYPE_DIFFERS
    return Reason.NOT_PROMOTED if key in written else Reason.MISSING
