"""Errors while the row of a message is made: a failure of the message, or of the environment."""

from __future__ import annotations

from postroom.errors import DeliveryRefused, MessageFailure, is_environment_error

_LONGEST = 300


def row_failure(error: Exception) -> MessageFailure:
    """Return the failure of the message whose row was being made.

    An error of the environment is raised again: it ends the attempt at the batch, and nothing of the batch is lost."""
    if isinstance(error, MessageFailure):
        return error
    if is_environment_error(error):
        raise error
    if isinstance(error, RecursionError):
        return DeliveryRefused(
            "The body is nested too deeply to be read.",
            why=str(error)[:_LONGEST],
            hint="Correct the body and resume it, or terminate the instance.",
        )
    return DeliveryRefused(
        "No row can be made of the message.",
        why=f"{type(error).__name__}: {str(error)[:_LONGEST]}".rstrip(": "),
        hint="Correct the body and resume it, or change the sink's columns.",
    )
