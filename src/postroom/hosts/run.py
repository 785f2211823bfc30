"""A host instance as a process: works until it is told to stop."""

from __future__ import annotations

import threading
from pathlib import Path

from postroom.adapters import build
from postroom.hosts.instance import HostInstance
from postroom.hosts.messaging.send_ports import BuildAdapter
from postroom.hosts.settings import HostSettings
from postroom.stop_signals import set_on_stop_signals


def run_host(
    url: str,
    host_name: str,
    home: Path,
    *,
    as_role: bool = False,
    build_adapter: BuildAdapter = build,
    settings: HostSettings | None = None,
    stop: threading.Event | None = None,
) -> HostInstance:
    """Runs an instance of a host until SIGTERM or SIGINT comes, or ``stop`` is set; returns it, stopped.

    Raises NotFound, NotAllowed or Unavailable if it cannot start. Called in the main thread it takes over both signals
    meanwhile.
    """
    stopping = stop or threading.Event()
    instance = HostInstance(
        url,
        host_name,
        home,
        as_role=as_role,
        build_adapter=build_adapter,
        settings=settings,
    )
    with set_on_stop_signals(stopping), instance:
        stopping.wait()
    return instance
