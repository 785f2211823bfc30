"""Checks the transports of a send port: retries, service windows, and the backup transport. Each problem is one
sentence."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta

from postroom.adapters import SinkDefinition
from postroom.adapters.dynamic.definition import Dynamic
from postroom.application.backup_transport import BackupTransport
from postroom.application.checks.fields import adapter_problems
from postroom.application.circuit_breaker import CircuitBreaker
from postroom.application.declarations import Declared
from postroom.application.definition import SendPortSettings
from postroom.application.retry import Retry
from postroom.application.schedule import Schedule

_LONGEST_WAIT = timedelta(days=3650)


def transport_problems(port: Declared) -> Iterator[str]:
    """Yield the problems of the transports of a send port."""
    yield from _retry_problems(port.retry)
    yield from schedule_problems("service_window", port.service_window)
    is_sink = isinstance(port.adapter, SinkDefinition)
    if is_sink and port.service_window is not None:
        yield "a sink has no service_window: Spark writes its batches at any time."
    yield from _expiration_problems(port.expire_after)
    if is_sink and port.expire_after is not None:
        yield "a sink has no expire_after: Spark writes every message."
    yield from _circuit_breaker_problems(port)
    yield from SendPortSettings.order_problems(port)
    if port.backup is None:
        return
    if not isinstance(port.backup, BackupTransport):
        yield f"backup is {port.backup!r}, but must be something like BackupTransport(adapters.File('out/late'))."
        return
    if is_sink:
        yield "a sink has no backup transport: Spark repeats a batch until it is written."
    yield from (f"backup: {text}" for text in _backup_problems(port.backup))


def _circuit_breaker_problems(port: Declared) -> Iterator[str]:
    if port.circuit_breaker is None:
        return
    if not isinstance(port.circuit_breaker, CircuitBreaker):
        yield f"circuit_breaker is {port.circuit_breaker!r}, but must be something like CircuitBreaker(failures=10)."
        return
    yield from (f"circuit_breaker: {text}" for text in port.circuit_breaker.problems())
    if isinstance(port.adapter, SinkDefinition):
        yield "a sink has no circuit_breaker: Spark repeats a batch until it is written."
    if port.backup is not None:
        yield "a port has either a circuit_breaker or a backup transport: the backup sends while the receiver is dead."


def to_timedelta(given: timedelta | float) -> timedelta:
    """Return a time that is given in seconds or as a timedelta."""
    return given if isinstance(given, timedelta) else timedelta(seconds=given)


def _expiration_problems(given: object) -> Iterator[str]:
    if given is None:
        return
    if isinstance(given, bool) or not isinstance(given, int | float | timedelta):
        yield f"expire_after is {given!r}, but must be a number of seconds or a timedelta."
    elif not timedelta(0) < to_timedelta(given) <= _LONGEST_WAIT:
        yield f"expire_after is {given}, but must be more than 0 and at most {_LONGEST_WAIT.days} days."


def _backup_problems(backup: BackupTransport) -> Iterator[str]:
    if isinstance(backup.adapter, SinkDefinition | Dynamic):
        yield (
            f"the adapter {backup.adapter.kind!r} cannot be that of a backup transport. Use one that sends single "
            "messages to a fixed address, such as File or Http."
        )
    yield from adapter_problems(backup.adapter, "send")
    yield from _retry_problems(backup.retry)
    yield from schedule_problems("service_window", backup.service_window)


def _retry_problems(retry: object) -> Iterator[str]:
    if isinstance(retry, Retry):
        yield from retry.problems()
    else:
        yield f"retry is {retry!r}, but must be something like Retry(count=3, interval=60)."


def schedule_problems(what: str, schedule: object) -> Iterator[str]:
    """Yield the problems of a schedule: that of a receive location, or a service window."""
    if isinstance(schedule, Schedule):
        yield from (f"{what}: {text}" for text in schedule.problems())
    elif schedule is not None:
        yield f"{what} is {schedule!r}, but must be something like Schedule(window=('08:00', '18:00'))."
