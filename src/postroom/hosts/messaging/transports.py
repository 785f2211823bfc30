"""The transports of a send port: the remaining retries of each, and their service windows (SND-05, 06, 10)."""

from __future__ import annotations

from datetime import datetime

from postroom.application import Schedule
from postroom.messagebox.configuration import SendPort, Transport
from postroom.messagebox.queues import ClaimedMessage, Postponement, Suspension


def get_transport_index(claimed: ClaimedMessage) -> int:
    """Return the position of the next attempt's transport in the transports of its port.

    The backup transport is the last one. If it was removed from the port, the last one is the primary transport.
    """
    return 0 if claimed.primary_attempts is None else -1


def choose_transport(port: SendPort, claimed: ClaimedMessage) -> Transport:
    """Return the transport of the next attempt."""
    return port.transports[get_transport_index(claimed)]


def count_remaining_retries(transport: Transport, claimed: ClaimedMessage) -> int:
    """Return how often the transport may try again after the next attempt."""
    return max(0, transport.retry_count - (claimed.attempt - (claimed.primary_attempts or 0)))


def wait_for_service_window(window: Schedule, port: str, now: datetime) -> Postponement | Suspension | None:
    """Return None inside a service window. Outside, return a postponement until it opens, or a suspension if it never
    does."""
    if window.is_open(now):
        return None
    opens = window.next_opening(now)
    if opens is not None:
        return Postponement(delay=opens - now)
    return Suspension(
        code="SERVICE_WINDOW",
        description=f"The service window of send port {port} ({window}) does not open again.\n"
        "Correct service_window= of the port, apply the application, and resume the instance.",
    )
