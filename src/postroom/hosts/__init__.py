"""Host instances: processes that dequeue messages, pass them to their services and run the housekeeping jobs."""

from __future__ import annotations

from postroom.hosts.instance import HostInstance
from postroom.hosts.instance_parts import HostSettings
from postroom.hosts.run import run_host

__all__ = [
    "HostInstance",
    "HostSettings",
    "run_host",
]
