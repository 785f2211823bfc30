"""Errors that a pipeline raises and nobody expected: failures of the interchange, which is suspended with its bytes.

An interchange that meets a defect of our own code would meet it again at every attempt. It is suspended like any other
that cannot be read. The failure says where the defect was, so that it can be fixed and the interchange resumed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from postroom.errors import MessageFailure, PipelineFailure, PostroomError, is_environment_error
from postroom.pipelines.running.component_calls import line_of

_SHOWN = 500

_T = TypeVar("_T")


def translate_unexpected(batches: Iterator[_T]) -> Iterator[_T]:
    """Yields the same batches. An error of theirs becomes a PipelineFailure, unless the environment caused it."""
    try:
        yield from batches
    except Exception as error:
        # An OSError is about the file of the interchange: its bytes cannot be suspended, so that its task decides.
        if isinstance(error, MessageFailure | OSError) or is_environment_error(error):
            raise
        raise unexpected_failure(error) from error


def unexpected_failure(error: Exception) -> MessageFailure:
    """The failure of an interchange that could not be received because of an unexpected error."""
    if isinstance(error, MessageFailure):
        return error
    if isinstance(error, PostroomError):
        return PipelineFailure(error.what, why=error.why, hint=error.hint)
    text = str(error).strip().replace("\n", " ")
    return PipelineFailure(
        f"It could not be received: {text[:_SHOWN] or type(error).__name__}",
        why=f"{type(error).__name__}{line_of(error)}",
        hint="Send it in another form, or resume it with a version of Postroom that can receive it.",
    )
