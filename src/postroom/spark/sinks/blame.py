"""Whose fault it is that a row could not be made: one message's, or that of the world around it."""

from __future__ import annotations

from postroom.errors import DeliveryRefused, MessageFailure, StateError, is_environment_error

_LONGEST = 300


def failure_of(error: Exception) -> MessageFailure:
    """The failure of the one message whose row was being made. Raises what is not about a message again: it ends the
    attempt at the batch, of which nothing is lost."""
    if isinstance(error, MessageFailure):
        return error
    if isinstance(error, OSError | StateError) or is_environment_error(error):
        raise error
    if isinstance(error, RecursionError):
        return DeliveryRefused(
            "The body is nested too deeply to be read.",
            why=str(error)[:_LONGEST],
            hint="Mend the body and resume it, or terminate the instance.",
        )
    return DeliveryRefused(
        "No row can be made of the message.",
        why=f"{type(error).__name__}: {str(error)[:_LONGEST]}".rstrip(": "),
        hint="Mend the body and resume it, or change the sink's columns.",
    )
