"""What a filter is: an OR of AND-groups of predicates, built from Python expressions over properties."""

from __future__ import annotations

from postroom.namespaces import dotted_name
from postroom.values import ValueType


class Comparable:
    """What a predicate compares: a property, known by namespace, name and type."""

    __slots__ = ("namespace", "name", "value_type", "key")

    def __init__(self, *, namespace: str, name: str, value_type: ValueType) -> None:
        self.namespace = namespace
        self.name = name
        self.value_type = value_type
        self.key = f"{namespace}#{name}"

    @property
    def dotted(self) -> str:
        """How people write it: ``Orders.Region``."""
        return dotted_name(self.namespace, self.name)
