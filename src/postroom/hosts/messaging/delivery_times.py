"""When a message of a send port is sent: the remaining retries of each transport, their service windows, and the
expiration of messages (SND-05, 06, 10)."""

from __future__ import annotations

from datetime import datetime, timedelta

from postroom.errors import MessageExpired
from postroom.messagebox.queues import ClaimedMessage, Postponement, Suspension
from postroom.messagebox.storage.claimed_messages import StoredContext
from postroom.ports.send_ports import SendPort, Transport
from postroom.system_properties import BTS

_EXPIRATION_TIME = BTS.ExpirationTime.key


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
    return max(0, transport.settings.retry.count - (claimed.attempt - (claimed.primary_attempts or 0)))


def check_expiration(port: SendPort, claimed: ClaimedMessage, now: datetime) -> None:
    """Raise MessageExpired if the message has waited for too long, or its own expiration time has passed."""
    if port.settings.expire_after is not None and claimed.age >= port.settings.expire_after.total_seconds():
        raise MessageExpired(
            f"The message has waited for {timedelta(seconds=int(claimed.age))}, and send port {port.name} sends no "
            f"message after {port.settings.expire_after}.",
            hint="Resume the instance to send it anyway, or terminate it.",
        )
    expires = _get_expiration_time(claimed)
    if expires is not None and expires <= now:
        raise MessageExpired(
            f"The message expired at {expires:%Y-%m-%d %H:%M:%S %Z}, its BTS.ExpirationTime.",
            hint="Terminate the instance. If the message is still needed, publish it again.",
        )


def _get_expiration_time(claimed: ClaimedMessage) -> datetime | None:
    """Return the expiration time that the message brings, if any."""
    if claimed.context is None or _EXPIRATION_TIME not in claimed.context:
        return None
    return StoredContext(claimed.context, {}).get(BTS.ExpirationTime)


def _get_time_to_expiration(port: SendPort, claimed: ClaimedMessage, now: datetime) -> timedelta | None:
    """Return the time until the message expires in the send port or by itself. Return None if it does not expire."""
    left = []
    if port.settings.expire_after is not None:
        left.append(port.settings.expire_after - timedelta(seconds=claimed.age))
    if (expires := _get_expiration_time(claimed)) is not None:
        left.append(expires - now)
    return max(timedelta(0), min(left)) if left else None


def limit_to_expiration(delay: timedelta, port: SendPort, claimed: ClaimedMessage, now: datetime) -> timedelta:
    """Return the delay, or the time until the message expires if that comes first."""
    left = _get_time_to_expiration(port, claimed, now)
    return delay if left is None else min(delay, left)


def postpone_until_circuit_closes(port: SendPort, claimed: ClaimedMessage, now: datetime) -> Postponement:
    """Return a postponement until the circuit breaker of the port is closed, or until the message expires."""
    return Postponement(delay=_get_time_to_expiration(port, claimed, now), paused=True)


def postpone_to_service_window(
    port: SendPort, claimed: ClaimedMessage, now: datetime
) -> Postponement | Suspension | None:
    """Return None inside the service window. Outside, return a postponement until it opens, or a suspension if it never
    does."""
    window = choose_transport(port, claimed).settings.service_window
    if window is None or window.is_open(now):
        return None
    opens = window.next_opening(now)
    if opens is not None:
        return Postponement(delay=limit_to_expiration(opens - now, port, claimed, now))
    return Suspension(
        code="SERVICE_WINDOW",
        description=f"The service window of send port {port.name} ({window}) does not open again.\n"
        "Correct service_window= of the port, apply the application, and resume the instance.",
    )
