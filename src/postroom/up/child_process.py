"""A process that the supervisor starts, and starts again after it has ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from postroom.messagebox.embedded.postmaster import Guard
from postroom.processes.backoff import Backoff

_BACKOFF = Backoff(first=1.0, longest=30.0)
#: A process that ran this long before it ended is restarted at once.
_STABLE_SECONDS = 60.0


@dataclass
class ChildProcess:
    """A supervised process. ``starts`` is the number of its starts."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    process: subprocess.Popen[bytes] | None = None
    guard: Guard | None = None
    started: float = 0.0
    starts: int = 0
    metrics_port: int | None = None
    failures: int = 0
    not_before: float = field(default=0.0)

    def start(self, *, held: bool = False) -> None:
        """Start the process. Its output goes to the log. A pipeline that is ``held`` starts Spark and then waits for
        ``release``."""
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # A new session: Ctrl-C in the terminal reaches only the supervisor, which stops its children in order.
            self.process = subprocess.Popen(
                [*self.command, "--hold"] if held else self.command,
                env=dict(self.environment),
                stdin=subprocess.PIPE if held else subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.guard = Guard(self.process.pid)
        self.started = time.monotonic()
        self.starts += 1

    def release(self) -> None:
        """Let a process continue that is held."""
        if self.process is not None and self.process.stdin is not None:
            with suppress(BrokenPipeError), self.process.stdin as held:
                held.write(b"\n")

    def poll(self) -> int | None:
        """Return the exit code once, when the process has ended."""
        if self.process is None or self.process.poll() is None:
            return None
        code = self.process.returncode
        self._release()
        if time.monotonic() - self.started > _STABLE_SECONDS:
            self.failures = 0
        # The first restart is immediate.
        self.not_before = time.monotonic() + _BACKOFF.delay(self.failures)
        self.failures += 1
        return code

    def wait(self, deadline: float) -> None:
        """Wait for the process to end. Kill it at the deadline."""
        if self.process is not None:
            try:
                self.process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
            self._release()

    def _release(self) -> None:
        if self.guard is not None:
            self.guard.release()
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
        self.process = self.guard = None
