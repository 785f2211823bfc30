"""An installation of Postroom: a home folder with an application file, running processes, and the command line."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import textwrap
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path
from typing import Any

from postroom.agent.routing.table import RoutingTable
from postroom.agent.streaming.document_batch import ReceiveResult
from postroom.agent.streaming.interchange import Interchange
from postroom.agent.streaming.receiver import Receiver
from postroom.cli.main import main
from postroom.hosts import HostInstance, HostSettings
from postroom.message import Bytes, Context
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.connection import connect
from postroom.ports.receive_locations import read_receive_locations
from tests.support.waiting import PATIENCE, wait_until

PREAMBLE = """
from decimal import Decimal
from postroom import BTS, Application, ErrorReport, Property, Retry, adapters, pipelines
Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)
PROMOTE = {Region: "region", Total: "total", Priority: "priority"}
app = Application("orders")
app.property(Region, Total, Priority)
"""


class CommandFailed(AssertionError):
    """A command ended with another exit code than the test expected."""


class Installation:
    """One home folder. Runs commands on it, and starts processes that end with it."""

    def __init__(self, home: Path, database: str | None = None) -> None:
        self.home = home
        self.database = database
        self._stack = ExitStack()

    def __enter__(self) -> Installation:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- commands ----------------------------------------------------------------------------------------------

    def run(self, *words: str, exit_code: int = 0) -> str:
        """Run a command and return its output: standard error if it is expected to fail.

        Raise CommandFailed if the exit code is another one.
        """
        # A body is written to standard output as bytes.
        written, err = io.BytesIO(), io.StringIO()
        out = io.TextIOWrapper(written, encoding="utf-8", write_through=True)
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*words, *self.common_options()])
        if code != exit_code:
            raise CommandFailed(
                f"postroom {' '.join(words)} ended with {code}:\n{written.getvalue().decode()}{err.getvalue()}"
            )
        return written.getvalue().decode() if exit_code == 0 else err.getvalue()

    def run_json(self, *words: str) -> Any:
        """Run a command and return its JSON output."""
        return json.loads(self.run(*words, "-o", "json"))

    def apply(self, declarations: str) -> Path:
        """Write an application file with PREAMBLE and these declarations, and apply it."""
        file = self.write(declarations)
        self.run("apply", str(file))
        return file

    def write(self, declarations: str) -> Path:
        """Write an application file with PREAMBLE and these declarations."""
        file = self.home / "app.py"
        file.write_text(PREAMBLE + textwrap.dedent(declarations))
        return file

    def list_suspended(self, state: str = "suspended", *, error: str | None = None) -> list[dict[str, Any]]:
        """Return the suspended instances: all, or the (not) resumable ones, or those with one error code."""
        condition = ["--error", error] if error else []
        rows: list[dict[str, Any]] = self.run_json("instance", "list", "--state", state, *condition, "--limit", "10000")
        return rows

    def find_url(self) -> str:
        """Return the URL of the embedded MessageBox, or an empty text if it is not ready."""
        for file in (self.home / ".postroom" / "postgres").glob("*/postmaster.pid"):
            lines = file.read_text().splitlines()
            if len(lines) >= 8 and lines[7].strip() == "ready":
                return f"postgresql://postgres@/postroom?host={lines[4]}"
        return ""

    def receive(self, location: str, body: bytes, context: Context | None = None) -> ReceiveResult:
        """Receive one interchange as a pipeline task does, with the login of the location's host, without Spark."""
        assert self.database is not None
        with connect(self.database) as connection:
            [found] = [one for one in read_receive_locations(connection) if one.name == location]
            [host] = [host for host in read_hosts(connection) if host.host_id == found.host_id]
        interchange = Interchange(interchange_id=uuid.uuid4(), body=Bytes(body), context=context or Context())
        with connect(self.database, user=host.role_name) as connection:
            [received] = Receiver(connection, RoutingTable()).receive(found, [interchange])
        return received

    # -- processes ---------------------------------------------------------------------------------------------

    def start(self, *words: str) -> Process:
        """Start a command that keeps running. It is stopped with the installation."""
        return self._stack.enter_context(_stop_at_exit(Process(self, words)))

    def start_host(self, name: str = "Main") -> Process:
        return self.start("host", "run", name)

    @contextmanager
    def run_host(self, name: str = "Main") -> Iterator[None]:
        """Run a host instance in this process during the block. It starts faster than a process."""
        assert self.database is not None
        settings = HostSettings(stop_within=timedelta(seconds=PATIENCE))
        with HostInstance(self.database, name, self.home, settings=settings, as_role=True):
            yield

    def start_pipeline(self, name: str = "Main") -> Process:
        return self.start("pipeline", "run", name, "--master", "local[2]")

    def common_options(self) -> list[str]:
        """Return the options that every command of this installation needs."""
        return ["--home", str(self.home), *(["--database", self.database] if self.database else [])]

    # -- folders -----------------------------------------------------------------------------------------------

    def drop_file(self, name: str, content: bytes, folder: str = "in") -> None:
        """Write a file under a hidden name and rename it, so that it appears complete."""
        (self.home / folder).mkdir(parents=True, exist_ok=True)
        hidden = self.home / folder / f".{name}.part"
        hidden.write_bytes(content)
        hidden.rename(self.home / folder / name)

    def read_files(self, folder: str) -> list[bytes]:
        """Return the contents of the files in a folder, in no particular order. Hidden files are excluded."""
        return [path.read_bytes() for path in self._list_files(folder)]

    def wait_for_files(self, folder: str, count: int, timeout: float = PATIENCE) -> list[bytes]:
        wait_until(lambda: len(self._list_files(folder)) >= count, timeout, what=f"{count} files in {folder}")
        return self.read_files(folder)

    def _list_files(self, folder: str) -> list[Path]:
        paths = (self.home / folder).glob("*")
        return [path for path in paths if path.is_file() and not path.name.startswith(".")]


class Process:
    """A running `postroom` command."""

    def __init__(self, installation: Installation, words: tuple[str, ...]) -> None:
        self.name = " ".join(words)
        self.log = installation.home / f"{words[0]}-{os.getpid()}-{id(self)}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "postroom", *words, *installation.common_options()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Kill the process with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Stop the process with SIGTERM and return its exit code."""
        if self.is_running:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop:\n{self.output()}") from None

    def output(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def _stop_at_exit(process: Process) -> Iterator[Process]:
    try:
        yield process
    finally:
        if process.is_running:
            process.stop()
