"""What a fuzz target consists of."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.support.fuzzing.mutations import Mutation


class MessageLost(Exception):
    """The parser accepted an input but yielded less, more or something else than the input contains."""


@dataclass(frozen=True, kw_only=True)
class Target:
    """A parser, valid inputs for it, and how they are changed.

    ``check`` runs the parser. It returns a short text that describes the result, or raises PostroomError if the input
    was rejected. It raises MessageLost if a document is neither yielded nor reported. Any other exception is a crash.
    """

    check: Callable[[bytes], str]
    seeds: Sequence[bytes]
    mutations: Sequence[Mutation]


def choose(data: bytes, count: int) -> int:
    """Return a number below ``count`` that depends on the input only: which settings of the parser it is tried with."""
    return zlib.crc32(data) % count


def describe_failure(failure: Exception) -> str:
    """Return the text of a failure without values, so that failures of the same kind are equal."""
    what = getattr(failure, "what", str(failure))
    return re.sub(r"'.*'|\".*\"|[\d,.]+", "", f"{type(failure).__name__} {what} {getattr(failure, 'why', '')}")[:200]
