"""One instance with everything that is known about it: advice if it is suspended, and the story of an orchestration."""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import Instance, get_instance
from postroom.operations.instances.advice import read_advice
from postroom.operations.orchestrations.story import Story, read_story
from postroom.operations.records import extend, to_row


@dataclass(frozen=True, kw_only=True)
class InstanceDetails(Instance):
    """An instance with advice what to do about it, if it is suspended."""

    what_to_do: str | None


@dataclass(frozen=True, kw_only=True)
class OrchestrationInstanceDetails(InstanceDetails, Story):
    """An instance of an orchestration with its story."""


def get_instance_details(connection: Connection, instance_id: uuid.UUID) -> InstanceDetails:
    """Return an instance, with its story if it is one of an orchestration. Raise NotFound if there is none."""
    instance = get_instance(connection, instance_id)
    story = read_story(connection, instance_id)
    advice = read_advice(connection, instance)
    if story is None:
        return extend(instance, InstanceDetails, what_to_do=advice)
    return extend(instance, OrchestrationInstanceDetails, what_to_do=advice, **to_row(story))
