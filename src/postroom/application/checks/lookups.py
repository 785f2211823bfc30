"""Problems of the lookups of an application."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from postroom.application.checks.fields import filter_problems, host_problems, name_problems
from postroom.application.declarations import Declarations, Declared
from postroom.errors import Problem
from postroom.properties import DistinguishedField, Property


def lookup_problems(application: Declarations, hosts: Collection[str], known: list[Property]) -> Iterator[Problem]:
    """Yield every problem of every lookup."""
    for lookup in application.lookups:
        for text in name_problems("lookup", lookup.name):
            yield lookup.position.problem(text)
        for text in _problems(lookup, hosts, known):
            yield lookup.position.problem(f"lookup {lookup.name!r}: {text}")


def _problems(lookup: Declared, hosts: Collection[str], known: list[Property]) -> Iterator[str]:
    if not isinstance(lookup.key, Property):
        yield f"key is {lookup.key!r}, but must be a property, such as key=CustomerId."
    elif isinstance(lookup.key, DistinguishedField):
        yield f"key is the distinguished field {lookup.key.dotted_name}, which is not promoted. Promote a property."
    if lookup.filter is None:
        yield "it has no filter, so it would receive nothing. Write a filter, such as filter=Kind == 'customer'."
    yield from filter_problems(lookup.filter, known)
    yield from host_problems(lookup.host, hosts)
