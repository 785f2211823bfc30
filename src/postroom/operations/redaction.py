"""What listings must not show: headers of requests, logins of proxies, values of sensitive properties (SEC-14)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from postroom.filters.authorisation import MessagePredicate
from postroom.filters.explain import Explanation, PredicateExplanation
from postroom.filters.expression import Filter, Operator, Predicate
from postroom.message import Context
from postroom.messagebox.connection import Connection
from postroom.properties import Property
from postroom.values import ValueType

HIDDEN = "(hidden)"

_LOGIN = re.compile(r"//[^/?#]*@")
_SECRET = re.compile("password|secret|token|credential|key|jaas", re.IGNORECASE)
#: As Oracle has it: ``jdbc:oracle:thin:scott/tiger@db``.
_LOGIN_OF_JDBC = re.compile(r"^(jdbc:\w+:\w+:)[^@/]+/[^@]*@")
#: Settings inside of a URL: ``;password=…`` of JDBC, ``?password=…`` of PostgreSQL.
_IN_URL = re.compile(rf"([;&?][^;&?=]*(?:{_SECRET.pattern})[^;&?=]*=)[^;&]*", re.IGNORECASE)


def is_secret(name: str) -> bool:
    """Does a setting of that name look like one that nobody is to read?"""
    return _SECRET.search(name) is not None


def redact_adapter(adapter: Mapping[str, Any]) -> dict[str, Any]:
    """A stored adapter as it may be shown to anybody."""
    return {key: _redact_setting(key, value) for key, value in adapter.items()}


def _redact_setting(key: str, value: Any) -> Any:
    if key == "headers" and isinstance(value, Mapping):
        return dict.fromkeys(value, HIDDEN)
    if key == "options" and isinstance(value, Mapping):
        return {name: HIDDEN if is_secret(name) else _redact_setting("url", text) for name, text in value.items()}
    if key in ("proxy", "url") and isinstance(value, str):
        without_login = _LOGIN_OF_JDBC.sub(rf"\1{HIDDEN}@", _LOGIN.sub(f"//{HIDDEN}@", value))
        return _IN_URL.sub(rf"\1{HIDDEN}", without_login)
    if key == "files" and isinstance(value, Mapping):
        # What travels with a pipeline or a map: nobody reads it as it is stored.
        return {name: f"version {hashlib.sha256(str(text).encode()).hexdigest()[:8]}" for name, text in value.items()}
    return value


def read_sensitive_keys(connection: Connection) -> frozenset[str]:
    """The keys of the properties whose values are never shown."""
    return frozenset(key for (key,) in connection.execute("SELECT key FROM properties WHERE sensitive"))


def redact_context(context: Context, sensitive: Collection[str]) -> Context:
    """A context as it may be shown: the properties are there, and the values of sensitive ones are not."""
    if not sensitive:
        return context

    def shown(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: HIDDEN if key in sensitive else value for key, value in values.items()}

    predicates = redact_predicates(context.predicates, sensitive)
    return Context(shown(context.promoted), shown(context.written), frozenset(predicates))


def redact_predicates(predicates: Iterable[MessagePredicate], sensitive: Collection[str]) -> list[MessagePredicate]:
    """What a message asks of its receivers, as it may be shown."""
    return [(key, HIDDEN if key in sensitive else value) for key, value in predicates]


def redact_filter(filter: Filter, sensitive: Collection[str]) -> Filter:
    """The filter of an instance as it may be shown: what it waits for came with a message."""
    return Filter(tuple(tuple(_redact_predicate(one, sensitive) for one in group) for group in filter.groups))


def build_hidden_filter(keys: Iterable[str]) -> Filter:
    """The filter of an instance for those who may not see what it waits for, only by which properties."""
    return Filter((tuple(Predicate(_of_text(key), Operator.EQ, HIDDEN) for key in keys),))


def can_read_correlation_values(connection: Connection) -> bool:
    """May the login see what instances wait for? Operators may not (SEC-13)."""
    row = connection.execute("SELECT has_column_privilege('subscriptions', 'correlation_values', 'SELECT')").fetchone()
    return row is not None and bool(row[0])


def redact_explanation(explanation: Explanation, sensitive: Collection[str], *, waiting: bool = False) -> Explanation:
    """An explanation as it may be shown: what a sensitive property met is not told, only whether it did. Nor is, where
    an instance is ``waiting``, what it wants; elsewhere that is configuration."""

    def shown(one: PredicateExplanation) -> PredicateExplanation:
        if one.predicate.property.key not in sensitive:
            return one
        wanted = _redact_predicate(one.predicate, sensitive) if waiting else one.predicate
        return replace(one, predicate=wanted, met=None if one.met is None else HIDDEN)

    groups = tuple(replace(group, predicates=tuple(map(shown, group.predicates))) for group in explanation.groups)
    return replace(explanation, groups=groups)


def _redact_predicate(one: Predicate, sensitive: Collection[str]) -> Predicate:
    if one.property.key not in sensitive or one.value is None:
        return one
    return Predicate(_of_text(one.property.key), one.operator, HIDDEN)


def _of_text(key: str) -> Property:
    """The property as if it were one of text, whatever its type is: no other can have HIDDEN as its value."""
    return Property.from_key(key, ValueType.STR)
