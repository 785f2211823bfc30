"""What Py4J, which talks to the JVM, says in the log of a process.

It tells of every connection, and gives a whole traceback for a JVM that has gone, beside the exception that it raises.
"""

from __future__ import annotations

import logging


def quieten_py4j() -> None:
    """From now on it warns, and in one line."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # Some of it goes to the root, and a logger's own filters only see what is given to itself.
    logging.getLogger().addFilter(_in_one_line)


def _in_one_line(record: logging.LogRecord) -> bool:
    if "py4j" in record.pathname and record.exc_info:
        record.msg, record.args = "%s %s", (record.getMessage(), record.exc_info[1])
        record.exc_info = record.exc_text = None
    return True
