from __future__ import annotations

import json
import logging
import uuid

from postroom.monitoring.logs import JsonFormatter


def make_record(**extra: object) -> logging.LogRecord:
    return logging.getLogger("postroom.x").makeRecord(
        "postroom.x", logging.WARNING, "x.py", 1, "it is %s", ("ü\nx",), None, extra=extra
    )


def test_a_record_is_one_json_object_with_the_ids_that_it_has() -> None:
    message_id, instance_id = uuid.uuid4(), uuid.uuid4()
    record = make_record(message_id=message_id, instance_id=instance_id)
    record.created = 1780315200.5
    line = JsonFormatter().format(record)
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-06-01T12:00:00.500Z",
        "level": "WARNING",
        "logger": "postroom.x",
        "message": "it is ü\nx",
        "message_id": str(message_id),
        "instance_id": str(instance_id),
    }


def test_an_exception_is_a_part_of_its_object() -> None:
    record = make_record()
    try:
        raise ValueError("no")
    except ValueError as error:
        record.exc_info = (ValueError, error, error.__traceback__)
    entry = json.loads(JsonFormatter().format(record))
    assert entry["exception"].endswith("ValueError: no")
    assert entry.keys() == {"time", "level", "logger", "message", "exception"}
