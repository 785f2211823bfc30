"""Places in the code of an orchestration: the line that issues a command, and the lines that raised an error."""

from __future__ import annotations

import asyncio
import sys
import traceback
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from types import CodeType

_PACKAGE = str(Path(__file__).parent)
_ASYNCIO = str(Path(asyncio.__file__).parent)


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


def _is_internal(file: str) -> bool:
    return file.startswith((_PACKAGE, _ASYNCIO))


def _format_place(file: str, line: int) -> str:
    return f"{_get_file_name(file)}:{line}"


@lru_cache(maxsize=256)
def _get_file_name(path: str) -> str:
    return Path(path).name
