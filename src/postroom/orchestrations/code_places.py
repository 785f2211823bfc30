"""Places in the code of an orchestration: the line that issues a command, and the lines that raised an error."""

from __future__ import annotations

import asyncio
import sys
import traceback
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
    return format_place(frame.f_code.co_filename, frame.f_lineno)


def format_place(file: str, line: int) -> str:
    """Return a place as the journal has it: the name of the file without its folder, and the line."""
    return f"{_get_file_name(file)}:{line}"


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
    """Return the traceback of an error without the lines of Postroom and asyncio."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if not _is_internal(frame.filename)]
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(own)] if own else []
    return "".join([*lines, *traceback.format_exception_only(error)]).strip()


def _is_internal(file: str) -> bool:
    return file.startswith((_PACKAGE, _ASYNCIO))


@lru_cache(maxsize=256)
def _get_file_name(path: str) -> str:
    return Path(path).name
