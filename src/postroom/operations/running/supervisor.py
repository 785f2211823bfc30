"""`postroom up`: the embedded PostgreSQL, the pipelines and the hosts as one thing that runs.

Each is a process of its own. One that ends is started again, at once the first time and then after a growing pause;
the database before those that need it. Everything ends with the supervisor, in whatever way that ends.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from postroom.backoff import Backoff
from postroom.errors import Unavailable
from postroom.messagebox.configuration import hosts, receive_locations, send_ports
from postroom.messagebox.connection import connect
from postroom.messagebox.embedded import EmbeddedServer
from postroom.messagebox.embedded.postmaster import Guard
from postroom.messagebox.streams.running_locations import LocationState
from postroom.operations.ports.receive_locations import describe_running_locations

_LOOK_SECONDS = 0.2
_LOOK_FOR_HOSTS_SECONDS = 5.0
_LOOK_AT_LOCATIONS_SECONDS = 1.0
_STOP_SECONDS = 30.0
_BACKOFF = Backoff(first=1.0, longest=30.0)
#: A process that ran this long before it ended is started again without a pause.
_RAN_WELL_SECONDS = 60.0

_log = logging.getLogger(__name__)

#: Told what happens, in words.
Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class SparkOptions:
    """Where Spark runs, and what it is told; as the pipelines' own options."""

    master: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)

    def as_arguments(self) -> list[str]:
        master = [] if self.master is None else ["--master", self.master]
        return master + [word for key, value in self.settings.items() for word in ("--conf", f"{key}={value}")]


@dataclass
class _Child:
    """One supervised process."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    guard: Guard | None = None
    started: float = 0.0
    failures: int = 0
    not_before: float = field(default=0.0)

    def start(self) -> None:
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # A session of its own: Ctrl-C in the terminal reaches the supervisor, which ends its children in order.
            self.process = subprocess.Popen(
                self.command,
                env=dict(self.environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.guard = Guard(self.process.pid)
        self.started = time.monotonic()

    def ended(self) -> int | None:
        """The exit code, once, when the process is gone."""
        if self.process is None or self.process.poll() is None:
            return None
        code = self.process.returncode
        self._forget()
        if time.monotonic() - self.started > _RAN_WELL_SECONDS:
            self.failures = 0
        # The first restart is immediate.
        self.not_before = time.monotonic() + _BACKOFF.delay(self.failures)
        self.failures += 1
        return code

    def end(self, deadline: float) -> None:
        if self.process is not None:
            try:
                self.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self._forget()

    def _forget(self) -> None:
        if self.guard is not None:
            self.guard.release()
        self.process = self.guard = None


class Supervisor:
    """Runs everything that a deployed MessageBox needs, until it is stopped.

    The database is the embedded one under ``home`` if ``server`` is given; otherwise somebody else looks after it."""

    def __init__(
        self,
        url: str,
        home: Path,
        *,
        server: EmbeddedServer | None = None,
        spark: SparkOptions | None = None,
        say: Say = _log.info,
    ) -> None:
        self.url = url
        self._home = home
        self._server = server
        self._spark = spark or SparkOptions()
        self._say = say
        self._children: list[_Child] = []
        self._look_again = 0.0
        self._look_at_locations = 0.0
        self._told: dict[str, LocationState] = {}

    def run(self, stop: threading.Event) -> None:
        """Supervises until ``stop`` is set, then ends everything in good order."""
        try:
            while not stop.is_set():
                self._look_after_server()
                self._look_for_hosts()
                for child in self._children:
                    self._look_after(child)
                self._tell_of_locations()
                stop.wait(_LOOK_SECONDS)
        finally:
            self._say("Stopping: pipelines, then hosts" + (", then PostgreSQL" if self._server is not None else ""))
            self._end()

    def pids(self) -> dict[str, int]:
        """The processes that run now, by name."""
        return {child.name: child.process.pid for child in self._children if child.process is not None}

    def _look_for_hosts(self) -> None:
        """What was applied in the meantime runs too: a new host, or the first receive location or sink of one."""
        if time.monotonic() < self._look_again:
            return
        self._look_again = time.monotonic() + _LOOK_FOR_HOSTS_SECONDS
        known = {child.name for child in self._children}
        try:
            self._children += [child for child in self._wanted() if child.name not in known]
        except Unavailable as error:
            self._say(f"The MessageBox does not answer: {str(error).splitlines()[0]}")

    def _wanted(self) -> list[_Child]:
        with connect(self.url, application_name="postroom up") as connection:
            known = hosts(connection)
            on_spark = {location.host_id for location in receive_locations(connection)}
            on_spark |= {port.host_id for port in send_ports(connection) if port.adapter_type.is_sink}
        wanted = [self._child("host", host.name) for host in known]
        return wanted + [self._child("pipeline", host.name) for host in known if host.host_id in on_spark]

    def _child(self, kind: str, host: str) -> _Child:
        command = [sys.executable, "-m", "postroom", kind, "run", host, "--home", str(self._home)]
        if kind == "pipeline":
            command += self._spark.as_arguments()
        name = f"{kind} {host}"
        # Not among the arguments, which everybody on the machine can read: the address may have a password in it.
        environment = {**os.environ, **({"POSTROOM_DATABASE": self.url} if self._server is None else {})}
        return _Child(
            name=name,
            command=command,
            environment=environment,
            log=self._home / ".postroom" / "logs" / f"{kind}-{host.lower()}.log",
        )

    def _tell_of_locations(self) -> None:
        """A process that runs is not yet one that takes in files: Spark has to start first, and then each stream."""
        if time.monotonic() < self._look_at_locations:
            return
        self._look_at_locations = time.monotonic() + _LOOK_AT_LOCATIONS_SECONDS
        try:
            with connect(self.url, application_name="postroom up") as connection:
                told = describe_running_locations(connection)
        except Unavailable:
            return  # told by those who look after it
        for name, (state, words) in sorted(told.items()):
            if self._told.get(name) is not state:
                self._say(f"{name}: {words}")
        self._told = {name: state for name, (state, _) in told.items()}

    def _look_after_server(self) -> None:
        if self._server is not None and self._server.pid is None:
            self._say("PostgreSQL is gone; starting it again")
            try:
                self._server.start()
            except Unavailable as error:
                self._say(f"PostgreSQL does not start: {error.why or error.what}")

    def _look_after(self, child: _Child) -> None:
        code = child.ended()
        if code is not None:
            self._say(f"{child.name} ended with {code}; starting it again (its log: {child.log})")
        if child.process is None and time.monotonic() >= child.not_before:
            child.start()
            assert child.process is not None
            self._say(f"{child.name} starts as process {child.process.pid}")

    def _end(self) -> None:
        # Pipelines first: what they have published in the meantime can still be delivered.
        for kind in ("pipeline", "host"):
            ending = [child for child in self._children if child.name.startswith(kind)]
            for child in ending:
                if child.process is not None:
                    child.process.terminate()
            deadline = time.monotonic() + _STOP_SECONDS
            for child in ending:
                child.end(deadline)
