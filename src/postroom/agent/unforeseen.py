"""What a pipeline raises that nobody has foreseen: a failure of its interchange, which is kept with its bytes.

An interchange that makes our own code stumble would stumble again at every try. It is suspended like any other that
cannot be read, and says where it was, so that whoever mends the code can resume it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from postroom.errors import PipelineFailure, PostroomError, is_environment_error
from postroom.pipelines.running_component import where

_SHOWN = 500

_T = TypeVar("_T")


def foreseen(batches: Iterator[_T]) -> Iterator[_T]:
    """The same batches; whatever they raise is a PipelineFailure, or not about the interchange."""
    try:
        yield from batches
    except PipelineFailure:
        raise
    except Exception as error:
        if isinstance(error, OSError) or is_environment_error(error):
            raise
        raise unforeseen(error) from error


def unforeseen(error: Exception) -> PipelineFailure:
    """The failure of an interchange that could not be received, and nobody knows why."""
    if isinstance(error, PostroomError):
        return PipelineFailure(error.what, why=error.why, hint=error.hint)
    text = str(error).strip().replace("\n", " ")
    return PipelineFailure(
        f"It could not be received: {text[:_SHOWN] or type(error).__name__}",
        why=f"{type(error).__name__}{where(error)}",
        hint="Send it in another form, or resume it with a version of Postroom that can receive it.",
    )
