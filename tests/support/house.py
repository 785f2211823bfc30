"""A Postroom as its users have it: a home folder, an application file, processes, and the command line."""

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
from pathlib import Path
from typing import Any

from postroom.agent.receiving.document_batch import Received
from postroom.agent.receiving.interchange import Interchange
from postroom.agent.receiving.receiver import Receiver
from postroom.agent.routing.table import RoutingTable
from postroom.cli.main import main
from postroom.message import Bytes, Context
from postroom.messagebox.configuration import read_hosts, read_receive_locations
from postroom.messagebox.connection import connect
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


class House:
    """One home folder, with the commands and processes that a test uses on it."""

    def __init__(self, home: Path, database: str | None = None) -> None:
        self.home = home
        self.database = database
        self._stack = ExitStack()

    def __enter__(self) -> House:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # -- commands ----------------------------------------------------------------------------------------------

    def run(self, *words: str, exit_code: int = 0) -> str:
        """What a command prints; its exit code has to be the one expected."""
        # A body is written to standard output as bytes.
        written, err = io.BytesIO(), io.StringIO()
        out = io.TextIOWrapper(written, encoding="utf-8", write_through=True)
        with redirect_stdout(out), redirect_stderr(err):
            code = main([*words, *self._where()])
        if code != exit_code:
            raise CommandFailed(
                f"postroom {' '.join(words)} ended with {code}:\n{written.getvalue().decode()}{err.getvalue()}"
            )
        return written.getvalue().decode() if exit_code == 0 else err.getvalue()

    def ask(self, *words: str) -> Any:
        """The JSON that a command prints."""
        return json.loads(self.run(*words, "-o", "json"))

    def apply(self, declarations: str) -> Path:
        """Writes an application file of the usual properties and these declarations, and applies it."""
        file = self.write(declarations)
        self.run("apply", str(file))
        return file

    def write(self, declarations: str) -> Path:
        """An application file of the usual properties and these declarations."""
        file = self.home / "app.py"
        file.write_text(PREAMBLE + textwrap.dedent(declarations))
        return file

    def suspended(self, state: str = "suspended", *, error: str | None = None) -> list[dict[str, Any]]:
        """The suspended instances: all, or those that are (not) resumable, or with one error code."""
        condition = ["--error", error] if error else []
        rows: list[dict[str, Any]] = self.ask("instance", "list", "--state", state, *condition, "--limit", "10000")
        return rows

    def url(self) -> str:
        """The address of the embedded MessageBox; empty until it is up."""
        for file in (self.home / ".postroom" / "postgres").glob("*/postmaster.pid"):
            lines = file.read_text().splitlines()
            if len(lines) >= 8 and lines[7].strip() == "ready":
                return f"postgresql://postgres@/postroom?host={lines[4]}"
        return ""

    def receive(self, location: str, body: bytes, context: Context | None = None) -> Received:
        """One interchange as a task of the pipeline receives it, logged in as the location's host; without Spark."""
        assert self.database is not None
        with connect(self.database) as connection:
            [where] = [one for one in read_receive_locations(connection) if one.name == location]
            [host] = [one for one in read_hosts(connection) if one.host_id == where.host_id]
        arrived = Interchange(interchange_id=uuid.uuid4(), body=Bytes(body), context=context or Context())
        with connect(self.database, user=host.role_name) as connection:
            [received] = Receiver(connection, RoutingTable()).receive(where, [arrived])
        return received

    # -- processes ---------------------------------------------------------------------------------------------

    def start(self, *words: str) -> Process:
        """A command that keeps running, ended with the house."""
        return self._stack.enter_context(_running(Process(self, words)))

    def start_host(self, name: str = "Main") -> Process:
        return self.start("host", "run", name)

    def start_pipeline(self, name: str = "Main") -> Process:
        return self.start("pipeline", "run", name, "--master", "local[2]")

    def _where(self) -> list[str]:
        return ["--home", str(self.home), *(["--database", self.database] if self.database else [])]

    # -- folders -----------------------------------------------------------------------------------------------

    def drop(self, name: str, content: bytes, folder: str = "in") -> None:
        """A whole file at once, as careful senders do it."""
        (self.home / folder).mkdir(parents=True, exist_ok=True)
        hidden = self.home / folder / f".{name}.part"
        hidden.write_bytes(content)
        hidden.rename(self.home / folder / name)

    def arrived(self, folder: str) -> list[bytes]:
        """The contents of the files in a folder, in no particular order."""
        paths = (self.home / folder).glob("*")
        return [path.read_bytes() for path in paths if path.is_file() and not path.name.startswith(".")]

    def wait_for_files(self, folder: str, count: int, timeout: float = PATIENCE) -> list[bytes]:
        def there() -> list[Path]:
            paths = (self.home / folder).glob("*")
            return [path for path in paths if path.is_file() and not path.name.startswith(".")]

        wait_until(lambda: len(there()) >= count, timeout, what=f"{count} files in {folder}")
        return self.arrived(folder)


class Process:
    """A running `postroom` command."""

    def __init__(self, house: House, words: tuple[str, ...]) -> None:
        self.name = " ".join(words)
        self.log = house.home / f"{words[0]}-{os.getpid()}-{id(self)}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "postroom", *words, *house._where()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def runs(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """Ends it at once, without a chance to tidy up."""
        self._process.kill()
        self._process.wait()

    def stop(self) -> int:
        """Asks it to end, and returns its exit code."""
        if self.runs:
            self._process.send_signal(signal.SIGTERM)
        try:
            return self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop:\n{self.output()}") from None

    def output(self) -> str:
        return self.log.read_text(errors="replace")


@contextmanager
def _running(process: Process) -> Iterator[Process]:
    try:
        yield process
    finally:
        if process.runs:
            process.stop()
