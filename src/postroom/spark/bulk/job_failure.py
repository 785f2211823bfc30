"""Whether a file is to blame for a job of Spark that failed, or the world around it."""

from __future__ import annotations

import re

import psycopg

from postroom.pipelines.world import tells_of_the_world
from postroom.spark.reasons import TRACEBACK, reason_of

#: Errors of the database that are about the content of one file and would come again with it.
ABOUT_CONTENT = (psycopg.DataError, psycopg.IntegrityError)

_RAISED = re.compile(r"^(?P<module>[\w.]+)\.(?P<name>\w+)(?::|$)")
#: Signs of a failure that is nobody's file's.
_WORLD = (
    "ExecutorLost",
    "executor lost",
    "SparkContext was shut down",
    "has been cancelled",
    "was cancelled",
    "Py4JNetwork",
)


def is_about_files(error: BaseException) -> bool:
    """Whether reading the same files again would most likely fail again, while others can be read."""
    said = str(error)
    if any(sign in said or sign in type(error).__name__ for sign in _WORLD):
        return False
    if isinstance(error, psycopg.Error):
        return False  # the driver's own connection
    reason = reason_of(error)
    if tells_of_the_world(reason):
        return False
    raised = _RAISED.match(reason)
    if raised is None or TRACEBACK not in said:
        return True
    if raised["module"].split(".")[0] == "psycopg":
        kind: type = getattr(psycopg.errors, raised["name"], psycopg.Error)
        return issubclass(kind, ABOUT_CONTENT)
    return raised["name"] != "Unavailable"
