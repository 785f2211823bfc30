"""A service instance as a row."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from postroom.cli.rendering.output import Format

if TYPE_CHECKING:
    from postroom.operations.instances.listing import Instance


def to_instance_row(instance: Instance, output: Format) -> dict[str, Any]:
    """Return the fields of an instance for a table or for -o json."""
    return {
        **asdict(instance),
        "service": instance.display_name if output is Format.TABLE else instance.service,
        # The queues count retries. Users count attempts.
        "attempt": instance.attempt + 1,
        "state": instance.state_label,
        "service_class": instance.service_class.name.lower(),
        "task": instance.task.name.lower(),
        "cause": None if instance.cause is None else instance.cause.name.lower().replace("_", " "),
        "reason": instance.reason,
        "since": instance.suspended_at or instance.enqueued_at,
    }
