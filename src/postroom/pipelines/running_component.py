"""A call of somebody's component: whatever it raises becomes the failure of a message, with the component's name; but
for what is not about any message."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

from postroom.errors import PipelineFailure, PostroomError, is_environment_error
from postroom.time_limit import TimedOut

_SHOWN = 500
#: What stands before the names of files that came with a definition, where they run.
_SHIPPED = re.compile(r"^<\w+>/")


def run_named(name: str, work: Callable[[Any], Any], argument: object) -> Any:
    try:
        return work(argument)
    except TimedOut:
        raise
    except BaseException as error:
        # Also SystemExit: a component does not end the process that it runs in.
        raise named_failure(name, error) from error


def named_failure(name: str, reason: BaseException | str) -> PipelineFailure:
    """The failure that a component gave a reason for, or raised. Raises that itself if it is none of a message."""
    if isinstance(reason, BaseException) and is_environment_error(reason):
        raise reason
    if isinstance(reason, str):
        return PipelineFailure(f"{name}: {reason[:_SHOWN]}", hint="Correct the message and send it again.")
    if isinstance(reason, PostroomError):
        return PipelineFailure(f"{name}: {reason.what}", why=reason.why, hint=reason.hint)
    text = str(reason)
    return PipelineFailure(
        f"{name}: {text[:_SHOWN] or type(reason).__name__}",
        why=f"{type(reason).__name__}{where(reason)}",
        hint="Correct the message and send it again, or correct the component and resume.",
    )


def where(error: BaseException) -> str:
    """The innermost line, for whoever wrote it; a file that came with the definition by its own name."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" at {_SHIPPED.sub('', frames[-1].filename)}:{frames[-1].lineno}." if frames else "."
