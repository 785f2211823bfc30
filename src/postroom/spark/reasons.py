"""Why something failed on Spark, in one line that people can read; Spark's own account is pages long and in its log."""

from __future__ import annotations

import re

from postroom.errors import PostroomError

#: What Python raised stands after it.
TRACEBACK = "Traceback (most recent call last):"

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


def reason_of(error: BaseException) -> str:
    """What was raised first, of which all else is a consequence."""
    if isinstance(error, PostroomError):
        return _line(f"{error.what} {error.why}")
    said = _said_by(error).partition("=== Streaming Query ===")[0]
    if TRACEBACK in said:
        return _line(_raised_by_python(said.rpartition(TRACEBACK)[2]))
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
