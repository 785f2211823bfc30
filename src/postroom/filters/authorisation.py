"""Who may receive: message predicates against what a host can show for itself (SEC-01 … 06).

    required = frozenset({("Security#Thumbprint", "A909")})
    may_receive(required, {("Security#Thumbprint", "A909")})        # True: the host shows what is required
    may_receive(required, NOTHING_TO_SHOW)                          # False

Only equality exists, and every predicate has to hold. A message without predicates may go to every host.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import UTC, datetime
from decimal import Decimal

from postroom.values import Value

#: The key of a property, and the value that a host must have for it.
MessagePredicate = tuple[str, Value]

#: What one host can show: keys of properties and values in their comparable text.
ApplicationProperties = frozenset[tuple[str, str]]

NOTHING_TO_SHOW: ApplicationProperties = frozenset()


def may_receive(predicates: Iterable[MessagePredicate], shown: Collection[tuple[str, str]]) -> bool:
    """Is every predicate among what the host shows?"""
    return all((key, comparable_text(value)) in shown for key, value in predicates)


def unmet(predicates: Iterable[MessagePredicate], shown: Collection[tuple[str, str]]) -> list[MessagePredicate]:
    """The predicates that the host cannot show, by key: why it is not authorised."""
    missing = [(key, value) for key, value in predicates if (key, comparable_text(value)) not in shown]
    return sorted(missing, key=lambda one: (one[0], comparable_text(one[1])))


def comparable_text(value: Value) -> str:
    """The one text that equal values of a type share; this is what the MessageBox stores and compares."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool | int):
        return str(int(value))
    if isinstance(value, Decimal):
        text = format(value, "f")
        text = text.rstrip("0").rstrip(".") if "." in text else text
        return "0" if text == "-0" else text
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat(timespec="microseconds")
    return repr(value + 0.0)
