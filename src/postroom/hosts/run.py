"""Runs a host instance as the work of a process."""

from __future__ import annotations

import resource
import threading
from pathlib import Path

from postroom.adapters import build
from postroom.errors import Unavailable
from postroom.hosts.host_instance import HostInstance, HostSettings
from postroom.hosts.messaging.open_send_ports import BuildAdapter
from postroom.monitoring.server import MonitoringServer
from postroom.processes.frozen_processes import end_blocked_process
from postroom.processes.garbage_collection import reduce_garbage_collection
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

    Raise NotFound, NotAllowed or Unavailable if it cannot start, and Unavailable if one of its threads is stuck. In the
    main thread this handles both signals while the instance runs.
    """
    raise_file_limit(_OPEN_FILES)
    stopping = stop or threading.Event()
    is_stuck = threading.Event()

    def end_process() -> None:
        is_stuck.set()
        stopping.set()

    instance = HostInstance(
        url,
        host_name,
        home,
        as_role=as_role,
        build_adapter=build_adapter,
        settings=settings,
        on_stuck_thread=end_process,
    )
    blocked_limit = (settings or HostSettings()).blocked_limit.total_seconds()
    with set_on_stop_signals(stopping), end_blocked_process(blocked_limit), instance:
        if monitoring is not None:
            monitoring.process = instance
        reduce_garbage_collection()
        stopping.wait()
    if is_stuck.is_set():
        raise Unavailable(
            "The host process ends, because a thread of an orchestration cannot be interrupted.",
            why="The orchestration calls something that does not return. Its instance is suspended, with the place.",
            hint="Correct the orchestration, or call this in a step with a timeout. Then start the host again.",
        )
    return instance
