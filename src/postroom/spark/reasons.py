"""Why something failed on Spark, in one line, and who caused it. Spark's own account is pages long and in its log.

Spark hands on exceptions of its workers as text: this is where they become facts again.
"""

from __future__ import annotations

import os
import re

from postroom import errors
from postroom.errors import MACHINE_ERRNOS, Fault, PostroomError

#: What Python raised stands after it.
_TRACEBACK = "Traceback (most recent call last):"

_LONGEST = 500
_CALLING = re.compile(r"^An error occurred while calling \S+\s*:\s*")
_CAUSE = re.compile(r"^Caused by: ", re.MULTILINE)
#: Where what Java raised ends: its stack, or the next account of the same.
_STACK = re.compile(r"^(?:\tat |\t\.\.\. \d+ |Driver stacktrace:|Caused by: )", re.MULTILINE)
_JAVA_CLASS = re.compile(r"^(?:[a-z_]\w*\.)+[A-Z][\w$]*(?:: |$)")
_CONDITION = re.compile(r"^\[[A-Z][A-Z0-9_.]+\] ")
#: Conditions that only say where it happened.
_WRAPPING = ("[FAILED_READ_FILE.NO_HINT]", "[TASK_WRITE_FAILED]", "[STREAM_FAILED]")
#: After which Spark prints its plan.
_SQLSTATE = re.compile(r"\s*SQLSTATE: \w+(?:;$.*)?", re.MULTILINE | re.DOTALL)

#: What a worker raised.
_RAISED = re.compile(rf"^{errors.__name__}\.(?P<name>\w+)(?::|$)")
#: Signs of a failed job that no input caused.
_LOST = re.compile(r"ExecutorLost|executor lost|SparkContext was shut down|(?:has been|was) cancelled|Py4JNetwork")
#: Errors of the machine, in the words of the system, which are also Java's.
_MACHINE = tuple(map(os.strerror, sorted(MACHINE_ERRNOS)))


def fault_of(error: BaseException) -> Fault:
    """Return who caused a job of Spark to fail: the environment, or else the input that it was given."""
    if isinstance(error, PostroomError):
        return error.fault
    said, reason = f"{type(error).__name__} {_said_by(error)}", reason_of(error)
    if _LOST.search(said) or any(words in reason for words in _MACHINE):
        return Fault.ENVIRONMENT
    if reason.startswith(MemoryError.__name__):
        return Fault.ENVIRONMENT
    raised = _RAISED.match(reason)
    kind = getattr(errors, raised["name"]) if raised is not None else None
    return kind.fault if kind is not None else Fault.MESSAGE


def reason_of(error: BaseException) -> str:
    """What was raised first, of which all else is a consequence."""
    if isinstance(error, PostroomError):
        return _line(f"{error.what} {error.why}")
    said = _said_by(error).partition("=== Streaming Query ===")[0]
    if _TRACEBACK in said:
        return _line(_raised_by_python(said.rpartition(_TRACEBACK)[2]))
    said = said.partition("JVM stacktrace:")[0]
    accounts = [_raised_by_java(account) for account in _CAUSE.split(_CALLING.sub("", said))]
    # What Spark has a name for, it explains; below that are the words of its libraries.
    explained = [one for one in accounts if _CONDITION.match(one) and not one.startswith(_WRAPPING)]
    told = next((one for one in reversed(explained or accounts) if one), "")
    return _line(_CONDITION.sub("", told)) or type(error).__name__


def _said_by(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        # Spark asks the JVM when it is asked, and what that answers may raise again.
        return str(getattr(error, "_desc", "") or "")


def _raised_by_python(account: str) -> str:
    """The lines of a traceback are indented, and what was raised is not."""
    lines = _STACK.split(account, maxsplit=1)[0].splitlines()
    return " ".join(line for line in lines if not line.startswith(" "))


def _raised_by_java(account: str) -> str:
    told = _STACK.split(account, maxsplit=1)[0].strip()
    return _SQLSTATE.sub("", _JAVA_CLASS.sub("", told))


def _line(text: str) -> str:
    words = " ".join(text.split())
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"
