"""Count the modules that five kinds of messages pass: ``python -m tests.support.walks``.

An idle installation gets a few messages of a kind, one after the other. A module is on the path if each of them entered
a function of it that an idle installation does not enter. The modules are listed in the order in which the threads
entered them. A *return* is a step into a package that the path had left before. SQL files are not counted.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import postroom
from tests.support.reserved_port import reserve_port
from tests.support.waiting import wait_until
from tests.support.walks.sitecustomize import Recorder

HERE = Path(__file__).parent
WARM_UPS, MESSAGES = 3, 5
#: Time for the installation to become idle, in seconds.
PAUSE = 1.0
#: Time in which an idle installation enters all functions that it ever enters, in seconds.
IDLE = 20.0


class Walks:
    """A running installation whose processes write down the modules that they enter."""

    def __init__(self, home: Path, records: Path, port: int) -> None:
        self.home = home
        self.records = records
        self.port = port
        self.client = postroom.connect(home=home)
        self.idle: set[tuple[str, str]] = set()

    def watch_idle(self) -> None:
        """Find the functions that an idle installation enters."""
        start = time.monotonic_ns()
        time.sleep(IDLE)
        self.idle = set(self._read(start, time.monotonic_ns()))

    def measure(
        self, send: Callable[[str], None], *, prepare: Callable[[str], None] | None = None, process: str = ""
    ) -> list[str]:
        """Send messages, and return the modules that all of them entered, in order: in all processes or in one."""
        windows = []
        for _ in range(WARM_UPS + MESSAGES):
            number = uuid.uuid4().hex
            if prepare:
                prepare(number)
            time.sleep(PAUSE)
            start = time.monotonic_ns()
            send(number)
            windows.append((start, time.monotonic_ns()))
        entered = [self._read(*window, process) for window in windows[WARM_UPS:]]
        common = set.intersection(*map(set, entered)) - self.idle
        return list(dict.fromkeys(module for module, function in entered[-1] if (module, function) in common))

    def _read(self, start: int, end: int, process: str = "") -> list[tuple[str, str]]:
        """Return the functions that were entered between two moments, one thread after the other."""
        lines = (line.split() for file in self.records.iterdir() for line in file.read_text().splitlines())
        events = sorted((int(moment), thread, (module, function)) for moment, thread, module, function in lines)
        threads: dict[str, list[tuple[str, str]]] = {}
        for moment, thread, entered in events:
            if start <= moment <= end and thread.startswith(process):
                threads.setdefault(thread, []).append(entered)
        return [entered for functions in threads.values() for entered in functions]

    def run(self, *words: str, recorded: bool = False) -> str:
        """Run a command, and return its output."""
        environment = {name: value for name, value in os.environ.items() if recorded or name != "WALKS"}
        command = [sys.executable, "-m", "postroom", *words, "--home", str(self.home)]
        return subprocess.run(command, check=True, env=environment, capture_output=True, text=True).stdout

    def drop(self, kind: str, number: str) -> None:
        hidden = self.home / "in" / ".part"
        hidden.write_text(json.dumps({"kind": kind, "number": number}))
        hidden.rename(hidden.with_name(f"{number}.json"))

    def publish(self, kind: str, number: str) -> None:
        self.client.publish(number.encode(), promoted={"Walk.Kind": kind, "Walk.Number": number})

    def wait_for_files(self, number: str, *folders: str) -> None:
        """Wait until each folder has a file with this number."""
        wait_until(lambda: all(self._has_come(number, folder) for folder in folders), what=f"files in {folders}")

    def _has_come(self, number: str, folder: str) -> bool:
        return any(number in path.read_text() for path in (self.home / "out" / folder).glob("[!.]*"))

    # -- the paths ---------------------------------------------------------------------------------------------

    def send_file(self, number: str) -> None:
        self.drop("file", number)
        self.wait_for_files(number, "one", "two", "three")

    def publish_recorded(self, number: str) -> None:
        sys.setprofile(Recorder(str(self.records)))
        try:
            self.publish("publish", number)
        finally:
            sys.setprofile(None)

    def ask(self, number: str) -> None:
        url = f"http://127.0.0.1:{self.port}/asked"
        with urllib.request.urlopen(url, json.dumps({"kind": number}).encode()) as response:
            assert response.read() == b"answer"

    def pay(self, number: str) -> None:
        self.publish("order", number)
        time.sleep(PAUSE)  # The instance waits for its payment.
        self.publish("payment", number)
        self.wait_for_files(number, "done")

    def suspend(self, number: str) -> None:
        """Have an inbound message suspended because it has no subscriber, and then start the subscriber."""
        self.run("port", "unenlist", "late")
        self.drop("late", number)
        wait_until(self._list_suspended, what="a suspended message")
        self.run("port", "start", "late")

    def resume(self, number: str) -> None:
        self.run("instance", "resume", self._list_suspended()[0], recorded=True)
        self.wait_for_files(number, "late")

    def _list_suspended(self) -> list[str]:
        rows = json.loads(self.run("instance", "list", "--state", "resumable", "-o", "json"))
        return [row["instance_id"] for row in rows]


@contextmanager
def run_installation() -> Iterator[Walks]:
    """Run the application of this folder until it has delivered a file."""
    with ExitStack() as stack:
        home = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        records = home / "records"
        records.mkdir()
        port = stack.enter_context(reserve_port())
        answers = stack.enter_context(_run_receiver())
        os.environ |= {"WALKS_PORT": str(port), "WALKS_ANSWERS": str(answers)}
        command = [sys.executable, "-m", "postroom", "up", str(HERE / "app.py"), "--home", str(home)]
        path = f"{HERE}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
        with (home / "up.log").open("wb") as log:
            os.environ |= {"WALKS": str(records), "PYTHONPATH": path}
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)
        try:
            wait_until(lambda: "drop: receiving" in (home / "up.log").read_text(), what="the location")
            walks = Walks(home, records, port)
            with walks.client:
                yield walks
        finally:
            process.terminate()
            process.wait()


@contextmanager
def _run_receiver() -> Iterator[int]:
    """Run a server that answers every request, and yield its port."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.send_header("Content-Length", "6")
            self.end_headers()
            self.wfile.write(b"answer")

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_port
        server.shutdown()


def count_returns(packages: list[str]) -> int:
    """Return how often a path enters a package that it had left before."""
    changes = [package for before, package in zip(["", *packages], packages, strict=False) if package != before]
    return len(changes) - len(set(changes))


def main() -> None:
    with run_installation() as walks:
        walks.send_file(uuid.uuid4().hex)
        walks.watch_idle()
        report("file to three send ports", walks.measure(walks.send_file))
        report("client.publish", walks.measure(walks.publish_recorded, process=f"{os.getpid()}-"))
        report("two-way HTTP", walks.measure(walks.ask))
        report("orchestration", walks.measure(walks.pay))
        report("resume", walks.measure(walks.resume, prepare=walks.suspend))


def report(name: str, modules: list[str]) -> None:
    """Print the figures of a path, and its modules with ``-v``."""
    returns = count_returns([module.split(".")[1] for module in modules])
    sys.stdout.write(f"{name}: {len(modules)} modules, {returns} returns\n")
    if "-v" in sys.argv:
        sys.stdout.write(f"  {' '.join(module.removeprefix('postroom.') for module in modules)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
