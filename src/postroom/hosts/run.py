"""Runs a host instance as the work of a process."""

from __future__ import annotations

import gc
import resource
import threading
from pathlib import Path

from postroom.adapters import build
from postroom.hosts.instance import HostInstance, HostSettings
from postroom.hosts.messaging.open_send_ports import BuildAdapter
from postroom.monitoring.server import MonitoringServer
from postroom.processes.stop_signals import set_on_stop_signals

#: Each HTTP client needs a file descriptor, and so does each body that is received in a temporary file.
_OPEN_FILES = 10_000


def raise_file_limit(files: int) -> None:
    """Let this process open this number of files, or as many as the system permits. The default is often 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = files if hard == resource.RLIM_INFINITY else min(files, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))


def run_host(
    url: str,
    host_name: str,
    home: Path,
    *,
    as_role: bool = False,
    build_adapter: BuildAdapter = build,
    settings: HostSettings | None = None,
    stop: threading.Event | None = None,
    monitoring: MonitoringServer | None = None,
) -> HostInstance:
    """Run a host instance until SIGTERM, SIGINT or ``stop``. Return the stopped instance.

    Raise NotFound, NotAllowed or Unavailable if it cannot start. In the main thread this handles both signals while
    the instance runs.
    """
    raise_file_limit(_OPEN_FILES)
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
        if monitoring is not None:
            monitoring.process = instance
        # What is loaded now stays. The garbage collector need not look at it again and again.
        gc.collect()
        gc.freeze()
        stopping.wait()
    return instance
