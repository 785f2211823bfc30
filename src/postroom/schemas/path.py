"""The paths in BizTalk's annotations: from the root down by local names and namespaces, and nothing else.

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
class Step:
    """One name on the way down; a namespace that is None may be any."""

    name: str
    namespace: str | None
    attribute: bool

    def names(self, namespace: str, name: str) -> bool:
        return name == self.name and self.namespace in (None, namespace)

    def __str__(self) -> str:
        return f"@{self.name}" if self.attribute else self.name


def read_path(path: str) -> tuple[Step, ...] | None:
    """The steps of a path; None if it is not of BizTalk's form."""
    steps: list[Step] = []
    position = 0
    while position < len(path):
        match = _STEP.match(path, position)
        if match is None or (steps and steps[-1].attribute):
            return None
        namespace = match["namespace"]
        steps.append(
            Step(
                name=match["name"][1:-1],
                namespace=None if namespace is None else namespace[1:-1],
                attribute=match["attribute"] is not None,
            )
        )
        position = match.end()
    return tuple(steps) or None
