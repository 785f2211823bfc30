"""What listings must not show: headers of requests, logins of proxies, values of sensitive properties (SEC-14)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from postroom.filters.explain import Explanation
from postroom.message import Context
from postroom.messagebox.connection import Connection

HIDDEN = "(hidden)"

_LOGIN = re.compile(r"//[^/?#]*@")


def discreet(adapter: Mapping[str, Any]) -> dict[str, Any]:
    """A stored adapter as it may be shown to anybody."""
    return {key: _discreet(key, value) for key, value in adapter.items()}


def _discreet(key: str, value: Any) -> Any:
    if key == "headers" and isinstance(value, Mapping):
        return dict.fromkeys(value, HIDDEN)
    if key == "proxy" and isinstance(value, str):
        return _LOGIN.sub(f"//{HIDDEN}@", value)
    return value


def sensitive_keys(connection: Connection) -> frozenset[str]:
    """The keys of the properties whose values are never shown."""
    return frozenset(key for (key,) in connection.execute("SELECT key FROM properties WHERE sensitive"))


def discreet_context(context: Context, sensitive: Collection[str]) -> Context:
    """A context as it may be shown: the properties are there, and the values of sensitive ones are not."""
    if not sensitive:
        return context

    def shown(values: Mapping[str, Any]) -> dict[str, Any]:
        return {key: HIDDEN if key in sensitive else value for key, value in values.items()}

    predicates = {(key, HIDDEN if key in sensitive else value) for key, value in context.predicates}
    return Context(shown(context.promoted), shown(context.written), predicates)


def discreet_explanation(explanation: Explanation, sensitive: Collection[str]) -> Explanation:
    """An explanation as it may be shown: what a sensitive property met is not told, only whether it did."""
    groups = tuple(
        replace(
            group,
            predicates=tuple(
                replace(one, met=HIDDEN) if one.met is not None and one.predicate.property.key in sensitive else one
                for one in group.predicates
            ),
        )
        for group in explanation.groups
    )
    return replace(explanation, groups=groups)
