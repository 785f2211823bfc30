"""Whether two patterns of file names can take the same file."""

from __future__ import annotations

import re
from functools import cache

_TOKENS = re.compile(r"\*+|\?|\[!?\]?[^\]]*\]|.", re.DOTALL)


def may_meet(one: str, other: str) -> bool:
    """Whether a name may match both. Character classes are taken to have characters in common."""
    left, right = _tokens(one), _tokens(other)

    @cache
    def meet(at: int, there: int) -> bool:
        if at == len(left) and there == len(right):
            return True
        if at < len(left) and left[at] == "*":
            return meet(at + 1, there) or (there < len(right) and meet(at, there + 1))
        if there < len(right) and right[there] == "*":
            return meet(at, there + 1) or (at < len(left) and meet(at + 1, there))
        return at < len(left) and there < len(right) and _same(left[at], right[there]) and meet(at + 1, there + 1)

    return meet(0, 0)


def _tokens(pattern: str) -> list[str]:
    """Stars, question marks, classes and plain characters."""
    return ["*" if token.startswith("*") else token for token in _TOKENS.findall(pattern)]


def _same(one: str, other: str) -> bool:
    return one == other or any(token == "?" or len(token) > 1 for token in (one, other))
