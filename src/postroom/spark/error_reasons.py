"""Find the cause of a Spark error and format it in one line. Spark's own report has many pages, and is in its log.

Spark passes on the exceptions of its workers as text. This module parses that text.
"""

from __future__ import annotations

import os
import re

from postroom import errors
from postroom.errors import MACHINE_ERRNOS, Fault, PostroomError

#: The Python exception follows after this line.
_TRACEBACK = "Traceback (most recent call last):"

_MAX_LENGTH = 500
_CALLING = re.compile(r"^An error occurred while calling \S+\s*:\s*")
_CAUSE = re.compile(r"^Caused by: ", re.MULTILINE)
#: The end of the message of a Java exception: its stack, or the next cause.
_STACK = re.compile(r"^(?:\tat |\t\.\.\. \d+ |Driver stacktrace:|Caused by: )", re.MULTILINE)
_JAVA_CLASS = re.compile(r"^(?:[a-z_]\w*\.)+[A-Z][\w$]*(?:: |$)")
_CONDITION = re.compile(r"^\[[A-Z][A-Z0-9_.]+\] ")
#: Error conditions that only wrap another error.
_WRAPPING = ("[FAILED_READ_FILE.NO_HINT]", "[TASK_WRITE_FAILED]", "[STREAM_FAILED]")
#: Spark prints its plan after the SQLSTATE.
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+(?:;$.*)?", re.MULTILINE | re.DOTALL)

#: The type of a Postroom error that a worker raised.
_RAISED = re.compile(rf"^{errors.__name__}\.(?P<name>\w+)(?::|$)")
#: The texts of failures that no input has caused.
_LOST = re.compile(r"ExecutorLost|executor lost|SparkContext was shut down|(?:has been|was) cancelled|Py4JNetwork")
#: The texts of machine errors. Java uses those of the operating system, too.
_MACHINE = tuple(map(os.strerror, sorted(MACHINE_ERRNOS)))


def find_fault(error: BaseException) -> Fault:
    """Return the cause of a failed Spark job: the environment, or else its input."""
    if isinstance(error, PostroomError):
        return error.fault
    text, reason = f"{type(error).__name__} {_read_text(error)}", format_reason(error)
    if _LOST.search(text) or any(machine_error in reason for machine_error in _MACHINE):
        return Fault.ENVIRONMENT
    if reason.startswith(MemoryError.__name__):
        return Fault.ENVIRONMENT
    raised = _RAISED.match(reason)
    kind = getattr(errors, raised["name"]) if raised is not None else None
    return kind.fault if kind is not None else Fault.MESSAGE


def format_reason(error: BaseException) -> str:
    """Return the message of the first exception, which has caused the others, in one line."""
    if isinstance(error, PostroomError):
        return _to_line(f"{error.what} {error.why}")
    text = _read_text(error).partition("=== Streaming Query ===")[0]
    if _TRACEBACK in text:
        return _to_line(_parse_python(text.rpartition(_TRACEBACK)[2]))
    text = text.partition("JVM stacktrace:")[0]
    causes = [_parse_java(cause) for cause in _CAUSE.split(_CALLING.sub("", text))]
    # Spark explains errors with a condition. Deeper causes have the messages of its libraries.
    explained = [cause for cause in causes if _CONDITION.match(cause) and not cause.startswith(_WRAPPING)]
    reason = next((cause for cause in reversed(explained or causes) if cause), "")
    return _to_line(_CONDITION.sub("", reason)) or type(error).__name__


def _read_text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        # Spark asks the JVM for the text, and that may fail, too.
        return str(getattr(error, "_desc", "") or "")


def _parse_python(traceback: str) -> str:
    """Return the exception of a traceback. Only its lines are not indented."""
    lines = _STACK.split(traceback, maxsplit=1)[0].splitlines()
    return " ".join(line for line in lines if not line.startswith(" "))


def _parse_java(cause: str) -> str:
    message = _STACK.split(cause, maxsplit=1)[0].strip()
    return _SQLSTATE.sub("", _JAVA_CLASS.sub("", message))


def _to_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _MAX_LENGTH else f"{line[: _MAX_LENGTH - 1]}…"
