"""Why a job of Spark failed: what was raised, and whether a file is to blame or the world around it."""

from __future__ import annotations

import re

import psycopg

#: Errors of the database that are about the content of one file and would come again with it.
ABOUT_CONTENT = (psycopg.DataError, psycopg.IntegrityError)

_TRACEBACK = "Traceback (most recent call last):"
_RAISED = re.compile(r"^(?P<module>[\w.]+)\.(?P<name>\w+)(?::|$)")
_CALLING = re.compile(r"^An error occurred while calling \S+ : ")
#: Signs of a failure that is nobody's file's.
_WORLD = (
    "ExecutorLost",
    "executor lost",
    "SparkContext was shut down",
    "has been cancelled",
    "was cancelled",
    "Py4JNetwork",
)


def reason_of(error: BaseException) -> str:
    """What was raised, in one line; Spark's own account of it is pages long and in its log."""
    said = str(error).partition("=== Streaming Query ===")[0].partition("JVM stacktrace:")[0]
    # What Python raised stands after its traceback, whose lines are indented.
    raised = said.rpartition(_TRACEBACK)[2]
    lines = [line.strip() for line in raised.splitlines() if line.strip() and not line.startswith((" ", "\t"))]
    return _CALLING.sub("", " ".join(lines))[:500]


def is_about_files(error: BaseException) -> bool:
    """Whether reading the same files again would most likely fail again, while others can be read."""
    said = str(error)
    if any(sign in said or sign in type(error).__name__ for sign in _WORLD):
        return False
    if isinstance(error, psycopg.Error):
        return False  # the driver's own connection
    raised = _RAISED.match(reason_of(error))
    if raised is None or _TRACEBACK not in said:
        return True
    if raised["module"].split(".")[0] == "psycopg":
        kind: type = getattr(psycopg.errors, raised["name"], psycopg.Error)
        return issubclass(kind, ABOUT_CONTENT)
    return raised["name"] != "Unavailable"
