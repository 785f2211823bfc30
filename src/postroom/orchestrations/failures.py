"""The errors of orchestrations. They are part of the tree in postroom/errors.py."""

from __future__ import annotations

from collections.abc import Mapping

from postroom.errors import MapFailure, PipelineFailure, PostroomError, StateError


class StepFailed(PostroomError):
    """The function of a step raised an exception, or took too long."""

    code = "STEP"


class UnstorableResult(StateError):
    """The function of a step has returned, but the journal cannot store its result."""

    code = "STEP_RESULT"


class JournalFull(StateError):
    """The journal of an instance has reached a limit, and there is more to do."""

    code = "JOURNAL_FULL"


class JournalMismatch(StateError):
    """The code of an orchestration does not issue the commands that are in the journal of an instance. ``turn`` is the
    number of the first turn that differs."""

    code = "JOURNAL"
    turn: int | None = None


class NotAwaited(StateError):
    """An orchestration called a coroutine function, such as ``send``, without ``await``. So the function never ran."""

    code = "NOT_AWAITED"


def describe_failure(failure: PipelineFailure) -> dict[str, str]:
    """Return the failure of a map or a pipeline as the journal stores it."""
    return {"code": failure.code, "what": failure.what, "why": failure.why, "hint": failure.hint}


def to_failure(stored: Mapping[str, str]) -> PipelineFailure:
    """The inverse of ``describe_failure``."""
    kind = MapFailure if stored["code"] == MapFailure.code else PipelineFailure
    return kind(stored["what"], why=stored["why"], hint=stored["hint"])
