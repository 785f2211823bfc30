"""Errors of Py4J are logged in one line."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from postroom.spark.session import reduce_py4j_logging


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("py4j")
    filters, level = list(root.filters), own.level
    yield
    root.filters[:] = filters
    own.setLevel(level)


def test_py4j_logs_one_line_and_other_loggers_are_unchanged(caplog: pytest.LogCaptureFixture) -> None:
    reduce_py4j_logging()
    reduce_py4j_logging()
    say = """
import logging
try:
    raise ConnectionError("nobody answers")
except ConnectionError:
    logging.exception("while sending %s", "a command")
"""
    for path in ("site-packages/py4j/java_gateway.py", "site-packages/other/other.py"):
        exec(compile(say, path, "exec"), {})
    ours, others = caplog.records
    assert (ours.getMessage(), ours.exc_info) == ("while sending a command nobody answers", None)
    assert others.getMessage() == "while sending a command"
    assert others.exc_info
