"""Hide what listings must not show: request headers, logins in URLs, values of sensitive properties (SEC-14)."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

from postroom.adapters.url_logins import HIDDEN, redact_login
from postroom.filters.authorisation import MessagePredicate
from postroom.filters.explain import Explanation, PredicateExplanation
from postroom.filters.expression import Filter, Operator, Predicate
from postroom.message import Context, Message
from postroom.properties import Property
from postroom.values import EPOCH, Value, ValueType, type_of

_SECRET = re.compile("password|secret|token|credential|key|jaas", re.IGNORECASE)
#: Oracle's form: ``jdbc:oracle:thin:scott/tiger@db``.
_JDBC_LOGIN = re.compile(r"^(jdbc:\w+:\w+:)[^@/]+/[^@]*@")
#: Settings in a URL: ``;password=…`` of JDBC, ``?password=…`` of PostgreSQL.
_URL_SETTING = re.compile(rf"([;&?][^;&?=]*(?:{_SECRET.pattern})[^;&?=]*=)[^;&]*", re.IGNORECASE)

#: A value of each type that says nothing about the one that it replaces.
_PLACEHOLDERS: Mapping[ValueType, Value] = {
    ValueType.STR: HIDDEN,
    ValueType.INT: 0,
    ValueType.DECIMAL: Decimal(0),
    ValueType.FLOAT: 0.0,
    ValueType.BOOL: False,
    ValueType.DATETIME: EPOCH,
}


def is_secret(name: str) -> bool:
    """Return True if the name of a setting looks like that of a secret."""
    return _SECRET.search(name) is not None


def redact_adapter(adapter: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stored adapter without its secrets."""
    return {key: _redact_setting(key, value) for key, value in adapter.items()}


def is_reference(value: object) -> bool:
    """Return True if a stored value is a reference to a secret, which may be shown."""
    return isinstance(value, Mapping) and value.get("kind") == "secret"


def _redact_setting(key: str, value: Any) -> Any:
    if key in ("headers", "users") and isinstance(value, Mapping):
        return {name: text if is_reference(text) else HIDDEN for name, text in value.items()}
    if key == "options" and isinstance(value, Mapping):
        return {
            name: HIDDEN if is_secret(name) and not is_reference(text) else _redact_setting("url", text)
            for name, text in value.items()
        }
    if key in ("proxy", "url") and isinstance(value, str):
        without_login = _JDBC_LOGIN.sub(rf"\1{HIDDEN}@", redact_login(value))
        return _URL_SETTING.sub(rf"\1{HIDDEN}", without_login)
    if key == "files" and isinstance(value, Mapping):
        # The source files of a pipeline or a map are too long for a listing.
        return {name: f"version {hashlib.sha256(str(text).encode()).hexdigest()[:8]}" for name, text in value.items()}
    return value


def redact_context(context: Context, sensitive: Collection[str]) -> Context:
    """Return the context with the values of sensitive properties hidden."""
    return _replace_values(context, sensitive, lambda _: HIDDEN) if sensitive else context


def replace_sensitive_values(message: Message, sensitive: Collection[str]) -> Message:
    """Return the message with the values of sensitive properties replaced by others of their types, so that code which
    reads them still works."""
    context = _replace_values(message.context, sensitive, lambda value: _PLACEHOLDERS[type_of(value)])
    return replace(message, context=context)


def _replace_values(context: Context, sensitive: Collection[str], choose: Callable[[Value], Value]) -> Context:
    promoted, written = (
        {key: choose(value) if key in sensitive else value for key, value in values.items()}
        for values in (context.promoted, context.written)
    )
    predicates = [(key, choose(value) if key in sensitive else value) for key, value in context.predicates]
    return Context(promoted, written, frozenset(predicates))


def redact_predicates(predicates: Iterable[MessagePredicate], sensitive: Collection[str]) -> list[MessagePredicate]:
    """Return the predicates of a message with the values of sensitive properties hidden."""
    return [(key, HIDDEN if key in sensitive else value) for key, value in predicates]


def redact_filter(filter: Filter, sensitive: Collection[str]) -> Filter:
    """Return the filter of an instance with sensitive values hidden. The values come from messages."""
    return Filter(
        tuple(tuple(_redact_predicate(predicate, sensitive) for predicate in group) for group in filter.groups)
    )


def build_hidden_filter(keys: Iterable[str]) -> Filter:
    """Return an instance's filter that shows the properties it waits for, but no values."""
    return Filter((tuple(Predicate(_to_text_property(key), Operator.EQ, HIDDEN) for key in keys),))


def redact_explanation(explanation: Explanation, sensitive: Collection[str], *, waiting: bool = False) -> Explanation:
    """Return the explanation with the message's sensitive values hidden.

    The value in the filter of a ``waiting`` instance is hidden, too, because it came from a message. In other filters
    it is configuration."""

    def redact(explained: PredicateExplanation) -> PredicateExplanation:
        if explained.predicate.property.key not in sensitive:
            return explained
        predicate = _redact_predicate(explained.predicate, sensitive) if waiting else explained.predicate
        return replace(explained, predicate=predicate, value=None if explained.value is None else HIDDEN)

    groups = tuple(replace(group, predicates=tuple(map(redact, group.predicates))) for group in explanation.groups)
    return replace(explanation, groups=groups)


def _redact_predicate(predicate: Predicate, sensitive: Collection[str]) -> Predicate:
    if predicate.property.key not in sensitive or predicate.value is None:
        return predicate
    return Predicate(_to_text_property(predicate.property.key), predicate.operator, HIDDEN)


def _to_text_property(key: str) -> Property:
    """Return the property with the type str, because only such a property can have HIDDEN as its value."""
    return Property.from_key(key, ValueType.STR)
