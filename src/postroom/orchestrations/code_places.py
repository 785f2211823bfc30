"""Places in the code of an orchestration: the line that issues a command, and the lines that raised an error.

An exception that nobody handles suspends the instance, and nothing of the turn in which it was raised is stored. So
compensations take effect only if the exception that started them is handled. But a compensation that waits ends the
turn, so it is stored before it is known whether the exception will be handled. The instance cannot continue inside the
scope then. So the places of commands that compensations issue are marked, and the traceback of an error says what
happened to its compensations.
"""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from pathlib import Path
from types import CodeType

_PACKAGE = str(Path(__file__).parent)
_ASYNCIO = str(Path(asyncio.__file__).parent)

#: The end of the places of commands that compensations issue.
COMPENSATION = ", compensation"

#: The attribute of an exception with the number of the turn in which compensations began because of it.
_FIRST_TURN = "_first_turn_of_compensations"

_is_compensating: ContextVar[bool] = ContextVar("is_compensating", default=False)


def find_place(boundary: CodeType) -> str | None:
    """Return the file and the line of the orchestration that calls Postroom now, in a frame above that of ``boundary``.
    Return None if there is none: the task runs a coroutine of Postroom or asyncio."""
    frame = sys._getframe(1)
    while _is_internal(frame.f_code.co_filename):
        if frame.f_code is boundary or frame.f_back is None:
            return None
        frame = frame.f_back
    return _format_place(frame.f_code.co_filename, frame.f_lineno)


def find_origin(frames: Sequence[tuple[str, int, str]]) -> str:
    """Return the file and the line of the orchestration that created a coroutine with this ``cr_origin``."""
    own = [_format_place(file, line) for file, line, _ in frames if not _is_internal(file)]
    return own[0] if own else "the orchestration"


def is_called_by(code: CodeType) -> bool:
    """Return True if a function of asyncio with this code calls Postroom now."""
    frame = sys._getframe(1)
    while _is_internal(frame.f_code.co_filename):
        if frame.f_code is code:
            return True
        if frame.f_back is None:
            return False
        frame = frame.f_back
    return False


def format_traceback(error: BaseException) -> str:
    """Return the traceback of an error without the lines of Postroom and asyncio, after those of its causes, and with
    those of the errors in a group."""
    described = traceback.TracebackException.from_exception(error)
    remaining = [described]
    while remaining:
        one = remaining.pop()
        own = [frame for frame in one.stack if not _is_internal(frame.filename)]
        # Without a stack there is no title either.
        one.stack = traceback.StackSummary.from_list(own) if own else None  # type: ignore[assignment]
        one.__context__ = None
        remaining += [*([one.__cause__] if one.__cause__ else []), *(one.exceptions or [])]
    return "".join(described.format()).strip()


@contextmanager
def mark_commands() -> Iterator[None]:
    """Mark the places of the commands that are issued inside."""
    before = _is_compensating.get()
    _is_compensating.set(True)
    try:
        yield
    finally:
        _is_compensating.set(before)


def mark_place(place: str) -> str:
    """Return the place of a command, marked if a compensation issues it."""
    return f"{place}{COMPENSATION}" if _is_compensating.get() else place


def mark_error(error: BaseException, turn: int) -> None:
    """Note in an exception that compensations run because of it, from this turn on."""
    error.__dict__.setdefault(_FIRST_TURN, turn)


def describe_compensations(error: BaseException, turn: int) -> str:
    """Return what happened to the compensations of an exception that nobody has handled in this turn, as a line after
    the traceback. The exception that started them may be the cause of a group of their failures."""
    first_turns = [cause.__dict__[_FIRST_TURN] for cause in _list_causes(error) if _FIRST_TURN in cause.__dict__]
    if not first_turns:
        return ""
    if min(first_turns) == turn:
        return (
            "\nThe compensations were not stored and have sent nothing, because the exception was not handled. If the "
            "instance is resumed, it continues from its last transaction. To compensate, handle the exception around "
            "the scope."
        )
    return (
        "\nCompensations have run and are stored, so the instance cannot continue inside the scope. Handle the "
        "exception around the scope, apply and resume; or terminate the instance."
    )


def _is_internal(file: str) -> bool:
    return file.startswith((_PACKAGE, _ASYNCIO))


def _format_place(file: str, line: int) -> str:
    return f"{_get_file_name(file)}:{line}"


@lru_cache(maxsize=256)
def _get_file_name(path: str) -> str:
    return Path(path).name


def _list_causes(error: BaseException) -> list[BaseException]:
    """Return an exception, its ``__cause__``, the cause of that, and so on."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and all(cause is not known for known in causes):
        causes.append(cause)
        cause = cause.__cause__
    return causes
