"""Host instances: processes that dequeue messages, pass them to their services and run the housekeeping jobs."""

from __future__ import annotations

from postroom.hosts.host_instance import HostInstance, HostSettings
from postroom.hosts.run import run_host

__all__ = [
    "HostInstance",
    "HostSettings",
    "run_host",
]
