"""Wait until the running processes have taken the changes of a deployment."""

from __future__ import annotations

import time
from collections.abc import Collection

from postroom.errors import ChangesNotTaken
from postroom.messagebox.connection import Connection
from postroom.messagebox.coordination.running_processes import (
    RunningProcess,
    list_running_processes,
    read_routing_version,
)

#: How long ``postroom apply`` waits. PostgreSQL ends the session of a frozen process after 8 s.
TAKE_SECONDS = 30.0
_POLL_SECONDS = 0.1


def wait_until_taken(connection: Connection, hosts: Collection[str], *, timeout: float = TAKE_SECONDS) -> None:
    """Wait until all running processes of these hosts use the configuration as it is now, or a later one.

    Raise ChangesNotTaken, which names the others, after ``timeout`` seconds. A process that has ended or is frozen has
    lost its lock, and is not waited for: it reads the configuration again when it continues. Processes of other hosts
    do not serve the application."""
    version = read_routing_version(connection)
    names = {name.lower() for name in hosts}
    deadline = time.monotonic() + timeout
    while late := _find_late(connection, names, version):
        if time.monotonic() >= deadline:
            raise _not_taken_error(late, timeout)
        time.sleep(_POLL_SECONDS)


def _find_late(connection: Connection, hosts: Collection[str], version: int) -> list[RunningProcess]:
    running = list_running_processes(connection)
    return [process for process in running if process.host.lower() in hosts and process.routing_version < version]


def _not_taken_error(late: list[RunningProcess], timeout: float) -> ChangesNotTaken:
    names = ", ".join(map(str, late))
    return ChangesNotTaken(
        f"The changes are deployed, but were not taken within {timeout:g} s by {names}.",
        why="Until then such a process continues with the previous definitions.",
        hint="Run the command again to wait again, or restart the process. Its log shows what it is doing.",
    )
