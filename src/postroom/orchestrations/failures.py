"""The errors of orchestrations. They are part of the tree in postroom/errors.py."""

from __future__ import annotations

from postroom.errors import PostroomError, StateError


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
    """The code of an orchestration does not issue the commands that are in the journal of an instance."""

    code = "JOURNAL"


class NotAwaited(StateError):
    """An orchestration called a coroutine function, such as ``send``, without ``await``. So the function never ran."""

    code = "NOT_AWAITED"
