"""Collect the wrong comparisons of an application's file, so that all of them can be reported together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from postroom.errors import BadFilter

_report: ContextVar[Callable[[BadFilter], None] | None] = ContextVar("report", default=None)


@contextmanager
def collect_bad_filters(report: Callable[[BadFilter], None]) -> Iterator[None]:
    """Within this context, pass each wrong comparison to ``report`` and replace it with some filter instead of raising.

    The caller must reject the file if anything was reported.
    """
    token = _report.set(report)
    try:
        yield
    finally:
        _report.reset(token)


def report_bad_filter(error: BadFilter) -> bool:
    """Report the error to the current collector. Return False if there is none."""
    report = _report.get()
    if report is not None:
        report(error)
    return report is not None
