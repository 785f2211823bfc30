"""The paths in BizTalk's annotations: local names and namespaces from the root down.

/*[local-name()='Order' and namespace-uri()='urn:orders']/*[local-name()='Id' and namespace-uri()='']
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_TEXT = r"'[^']*'|\"[^\"]*\""
_STEP = re.compile(
    rf"\s*/\s*(?P<attribute>@)?\s*\*\s*\[\s*local-name\(\)\s*=\s*(?P<name>{_TEXT})"
    rf"(?:\s+and\s+namespace-uri\(\)\s*=\s*(?P<namespace>{_TEXT}))?\s*\]\s*"
)


@dataclass(frozen=True, kw_only=True)
class PathStep:
    """One name of a path. A namespace of None matches every namespace."""

    name: str
    namespace: str | None
    attribute: bool

    def matches(self, namespace: str, name: str) -> bool:
        return name == self.name and self.namespace in (None, namespace)

    def __str__(self) -> str:
        return f"@{self.name}" if self.attribute else self.name


def parse_path(path: str) -> tuple[PathStep, ...] | None:
    """Return the steps of a path, or None if it is not in BizTalk's form."""
    steps: list[PathStep] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or (steps and steps[-1].attribute):
            return None
        namespace = match["namespace"]
        steps.append(
            PathStep(
                name=match["name"][1:-1],
                namespace=None if namespace is None else namespace[1:-1],
                attribute=match["attribute"] is not None,
            )
        )
        position = match.end()
    return tuple(steps) or None
