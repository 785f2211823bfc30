"""PostgreSQL and the host instances of a run, and the faults that they suffer."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field

import psutil
import psycopg

from postroom.messagebox.embedded import EmbeddedServer
from tests.support.delivery_chaos.record import Record
from tests.support.installation import Installation, Process
from tests.support.run_log import RunLog
from tests.support.waiting import wait_until

#: The host instances: two of each host. Front has a listener: one instance listens, and the other one takes over.
HOSTS = ("Main", "Main", "Front", "Front")
#: What is done, and how often it is chosen relative to the others.
_FAULTS = {
    "a host is killed": 4,
    "a host is frozen": 3,
    "a host is stopped": 1,
    "connections are dropped": 2,
    "transactions are ended": 3,
    "a backend is killed": 1,
    "PostgreSQL crashes": 1,
    "PostgreSQL restarts": 1,
}
#: PostgreSQL ends the session of a process that is frozen for more than 8 s.
_FROZEN_SECONDS = (5.0, 5.0, 12.0)
_OTHER_SESSIONS = """
    SELECT pid FROM pg_stat_activity
     WHERE backend_type = 'client backend' AND datname = current_database() AND pid <> pg_backend_pid()
"""
_IN_TRANSACTION = f"{_OTHER_SESSIONS} AND xact_start IS NOT NULL"
#: So many times a fault looks for sessions with a transaction. Most transactions take a few milliseconds.
_LOOKS = 50


def has_failed_to_start(output: str) -> bool:
    """Return True if the output of a host is that of a start without a MessageBox, or whose session was ended."""
    return "Error: The MessageBox " in output and " has started" not in output


@dataclass(kw_only=True)
class _Instance:
    """A host instance. It is frozen until ``resume_at``."""

    host: str
    process: Process
    resume_at: float | None = None
    frozen_at: float = 0.0


@dataclass(kw_only=True)
class Processes:
    """Kills, freezes and cuts off. ``keep_running`` does what a supervisor does."""

    server: EmbeddedServer
    installation: Installation
    record: Record
    hosts: tuple[str, ...] = HOSTS
    faults: Mapping[str, int] = field(default_factory=lambda: _FAULTS)
    pause_seconds: tuple[float, float] = (0.5, 3.0)
    instances: list[_Instance] = field(default_factory=list)
    #: The faults that have happened.
    done: Counter[str] = field(default_factory=Counter)

    def start(self) -> None:
        started = time.monotonic()
        self.instances = [
            _Instance(host=host, process=self.installation.start("host", "run", host, "--log-format", "json"))
            for host in self.hosts
        ]
        # Callers cannot connect before the start of their host, as after a fault.
        self.record.add_fault(None, started)

    def find_sender(self, port: int) -> int | None:
        """Return the process of a host whose connection has this local port. None if it has ended."""
        for instance in self.instances:
            with suppress(psutil.Error):
                connections = psutil.Process(instance.process.pid).net_connections(kind="tcp")
                if any(connection.laddr and connection.laddr.port == port for connection in connections):
                    return instance.process.pid
        return None

    def fail(self, seconds: float, *, seed: int, log: RunLog) -> None:
        """Suffer random faults for some seconds."""
        end = time.monotonic() + seconds
        for number in itertools.count():
            # A generator for each fault, so that a seed chooses the same faults whatever happens meanwhile.
            generator = random.Random(f"{seed} {number}")
            pause_until = time.monotonic() + generator.uniform(*self.pause_seconds)
            while time.monotonic() < pause_until:
                self.keep_running()
                time.sleep(0.05)
            if time.monotonic() >= end:
                return
            (fault,) = generator.choices(list(self.faults), weights=list(self.faults.values()))
            log.print(fault)
            self.act(fault, generator)
            self.done[fault] += 1

    def act(self, what: str, generator: random.Random) -> None:
        """Do one of the faults. The generator makes all choices."""
        instance = generator.choice(self.instances)
        match what:
            case "a host is killed":
                self._kill(instance)
            case "a host is frozen":
                self._freeze(instance, generator.choice(_FROZEN_SECONDS))
            case "a host is stopped":
                self._stop_host(instance)
            case "connections are dropped":
                self._drop_connections(generator)
            case "transactions are ended":
                self._end_transactions()
            case "a backend is killed":
                self._kill_backend(generator)
            case "PostgreSQL crashes":
                self._end_postgres(signal.SIGQUIT, generator.uniform(0, 1))
            case "PostgreSQL restarts":
                self._end_postgres(signal.SIGINT, generator.uniform(0, 1))

    def keep_running(self) -> None:
        """Continue hosts that were frozen long enough, and start hosts that have ended."""
        for instance in self.instances:
            if instance.resume_at is not None and time.monotonic() >= instance.resume_at:
                self._resume(instance)
            if not instance.process.is_running:
                started = time.monotonic()
                # A supervisor starts it again.
                if not has_failed_to_start(output := instance.process.output()):
                    self.record.add_problem(f"host {instance.host} ended by itself:\n{output[-2000:]}")
                pid = instance.process.pid
                self._start_again(instance)
                self.record.add_fault(instance.host, started, pid)

    def resume_all(self) -> None:
        for instance in self.instances:
            if instance.resume_at is not None:
                self._resume(instance)

    def stop(self) -> None:
        """Stop all hosts with SIGTERM."""
        for instance in self.instances:
            if (code := instance.process.stop()) != 0:
                self.record.add_problem(f"host {instance.host} ended with {code}")

    # -- faults --------------------------------------------------------------------------------------------------

    def _kill(self, instance: _Instance) -> None:
        started, pid = time.monotonic(), instance.process.pid
        instance.process.kill()
        self._start_again(instance)
        self.record.add_fault(instance.host, started, pid)

    def _stop_host(self, instance: _Instance) -> None:
        """Stop a host and start it again, as in a rolling restart."""
        if instance.resume_at is not None:
            self._resume(instance)
        started, pid = time.monotonic(), instance.process.pid
        # A host that is just starting is ended by the signal itself.
        if (code := instance.process.stop()) not in (0, -signal.SIGTERM):
            self.record.add_problem(f"host {instance.host} ended with {code}:\n{instance.process.output()[-2000:]}")
        self._start_again(instance)
        self.record.add_fault(instance.host, started, pid)

    def _freeze(self, instance: _Instance, seconds: float) -> None:
        if instance.resume_at is None:
            os.kill(instance.process.pid, signal.SIGSTOP)
            instance.frozen_at = time.monotonic()
            instance.resume_at = instance.frozen_at + seconds

    def _drop_connections(self, generator: random.Random) -> None:
        """End about half of the sessions of hosts, publishers and consumers."""
        started = time.monotonic()
        with suppress(psycopg.OperationalError), psycopg.connect(self.server.url(), autocommit=True) as connection:
            sessions = [pid for (pid,) in connection.execute(f"{_OTHER_SESSIONS} ORDER BY pid")]
            chosen = [pid for pid in sessions if generator.random() < 0.5]
            connection.execute("SELECT pg_terminate_backend(pid) FROM unnest(%s::integer[]) pid", (chosen,))
        self.record.add_fault(None, started)

    def _end_transactions(self) -> None:
        """End the sessions that are inside a transaction, several times in a row."""
        started = time.monotonic()
        with suppress(psycopg.OperationalError), psycopg.connect(self.server.url(), autocommit=True) as connection:
            for _ in range(_LOOKS):
                connection.execute(f"SELECT pg_terminate_backend(pid) FROM ({_IN_TRANSACTION})")
        self.record.add_fault(None, started)

    def _kill_backend(self, generator: random.Random) -> None:
        """Kill one process of PostgreSQL. The server ends all sessions, recovers, and continues."""
        started = time.monotonic()
        with suppress(psycopg.OperationalError), psycopg.connect(self.server.url(), autocommit=True) as connection:
            sessions = [pid for (pid,) in connection.execute(f"{_OTHER_SESSIONS} ORDER BY pid")]
            if sessions:
                with suppress(ProcessLookupError):
                    os.kill(generator.choice(sessions), signal.SIGKILL)
        self.record.add_fault(None, started)

    def _end_postgres(self, how: signal.Signals, seconds: float) -> None:
        """End PostgreSQL, and start it after some seconds."""
        started = time.monotonic()
        pid = self.server.pid
        assert pid is not None
        os.kill(pid, how)
        wait_until(lambda: self.server.pid is None, what="the end of PostgreSQL")
        time.sleep(seconds)
        self.server.start()
        self.record.add_fault(None, started)

    def _resume(self, instance: _Instance) -> None:
        with suppress(ProcessLookupError):
            os.kill(instance.process.pid, signal.SIGCONT)
        instance.resume_at = None
        self.record.add_fault(instance.host, instance.frozen_at, instance.process.pid)

    def _start_again(self, instance: _Instance) -> None:
        if instance.resume_at is not None:
            self._resume(instance)
        instance.process = self.installation.start("host", "run", instance.host, "--log-format", "json")
