"""Describes what happens to compensations if the exception that started them is not handled.

Such an exception suspends the instance, and nothing of the turn in which it was raised is stored. So compensations take
effect only if the exception is handled. But a compensation that waits ends the turn, so it is stored before it is known
whether the exception will be handled. The instance cannot continue inside the scope then.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: The end of the places of commands that compensations issue.
COMPENSATION = ", compensation"

#: The attribute of an exception with the number of the turn in which compensations began because of it.
_FIRST_TURN = "_first_turn_of_compensations"

_is_compensating: ContextVar[bool] = ContextVar("is_compensating", default=False)


@contextmanager
def mark_commands() -> Iterator[None]:
    """Mark the places of the commands that are issued inside."""
    before = _is_compensating.get()
    _is_compensating.set(True)
    try:
        yield
    finally:
        _is_compensating.set(before)


def mark_place(place: str) -> str:
    """Return the place of a command, marked if a compensation issues it."""
    return f"{place}{COMPENSATION}" if _is_compensating.get() else place


def mark_error(error: BaseException, turn: int) -> None:
    """Note in an exception that compensations run because of it, from this turn on."""
    error.__dict__.setdefault(_FIRST_TURN, turn)


def describe_compensations(error: BaseException, turn: int) -> str:
    """Return what became of the compensations of an exception that nobody has handled in this turn, as a line after
    the traceback. The exception that started them may be the cause of a group of their failures."""
    first_turns = [cause.__dict__[_FIRST_TURN] for cause in _list_causes(error) if _FIRST_TURN in cause.__dict__]
    if not first_turns:
        return ""
    if min(first_turns) == turn:
        return (
            "\nThe compensations were not stored and have sent nothing, because the exception was not handled. If the "
            "instance is resumed, it continues from its last transaction. To compensate, handle the exception around "
            "the scope."
        )
    return (
        "\nCompensations have run and are stored, so the instance cannot continue inside the scope. Handle the "
        "exception around the scope, apply and resume; or terminate the instance."
    )


def _list_causes(error: BaseException) -> list[BaseException]:
    """Return an exception, its ``__cause__``, the cause of that, and so on."""
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and all(cause is not known for known in causes):
        causes.append(cause)
        cause = cause.__cause__
    return causes
