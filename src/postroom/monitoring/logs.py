"""The log of a process: lines of text, or JSON objects for programs that collect logs.

    set_up_logging(LogFormat.JSON)
    _log.warning("message %s was suspended", message_id, extra={"message_id": message_id})

A JSON object has ``time``, ``level``, ``logger`` and ``message``, and the ids that ``extra`` gives: ``message_id``,
``interchange_id`` and ``instance_id``.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from enum import Enum

#: The environment variable with the format of the log.
LOG_FORMAT_VARIABLE = "POSTROOM_LOG_FORMAT"

_TEXT = "%(asctime)s %(levelname)s %(name)s: %(message)s"
_IDS = ("message_id", "interchange_id", "instance_id")


class LogFormat(Enum):
    """The format of a log."""

    TEXT = "text"
    JSON = "json"


def set_up_logging(log_format: LogFormat, level: int = logging.INFO) -> None:
    """Log to the standard error output, from this level on, unless the log was set up before."""
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if log_format is LogFormat.JSON else logging.Formatter(_TEXT))
    logging.basicConfig(level=level, handlers=[handler])


class JsonFormatter(logging.Formatter):
    """Formats each record as a JSON object on one line."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        entry = {"time": time, "level": record.levelname, "logger": record.name, "message": record.getMessage()}
        entry |= {name: str(value) for name in _IDS if (value := getattr(record, name, None)) is not None}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry, ensure_ascii=False)
