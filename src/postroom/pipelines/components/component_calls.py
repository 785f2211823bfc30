"""Calls the components of users. An exception becomes a failure of the message, with the component's name.

Errors of the environment are raised unchanged.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from typing import Any

from postroom.errors import PipelineFailure, PostroomError, is_environment_error
from postroom.processes.time_limit import TimedOut

#: The maximum number of characters of a reason.
_MAX_REASON = 500
#: The prefix of the names of files that are shipped with a definition.
_SHIPPED = re.compile(r"^<\w+>/")


def run_component(name: str, work: Callable[[Any], Any], argument: object) -> Any:
    """Call a component. Raises PipelineFailure for what it raises."""
    try:
        return work(argument)
    except TimedOut:
        raise
    except BaseException as error:
        # Also SystemExit: a component must not end the process that it runs in.
        raise component_failure(name, error) from error


def component_failure(name: str, reason: BaseException | str) -> PipelineFailure:
    """Return the failure that a component raised or gave a reason for. An error of the environment is raised again."""
    if isinstance(reason, BaseException) and is_environment_error(reason):
        raise reason
    if isinstance(reason, str):
        return PipelineFailure(f"{name}: {reason[:_MAX_REASON]}", hint="Correct the message and send it again.")
    if isinstance(reason, PostroomError):
        return PipelineFailure(f"{name}: {reason.what}", why=reason.why, hint=reason.hint)
    text = str(reason)
    return PipelineFailure(
        f"{name}: {text[:_MAX_REASON] or type(reason).__name__}",
        why=f"{type(reason).__name__}{format_source_line(reason)}",
        hint="Correct the message and send it again, or correct the component and resume.",
    )


def format_source_line(error: BaseException) -> str:
    """Return where the error was raised, as " at FILE:LINE." of the innermost frame. A shipped file has its original
    name."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" at {_SHIPPED.sub('', frames[-1].filename)}:{frames[-1].lineno}." if frames else "."
