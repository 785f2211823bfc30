"""The example applications: run one as a demo and check its outputs, or copy it as a new application.

The examples are folders of ``postroom.examples``: ``app.py`` is the application, ``demo.py`` has the steps of its demo.
"""

from __future__ import annotations

import json
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroom.application.definition import ApplicationDefinition
from postroom.errors import StateError, Unavailable, find_named
from postroom.messagebox.connection import Connection
from postroom.messagebox.instances import InstanceQuery, InstanceState, count_instances
from postroom.up.supervisor import Supervisor

if TYPE_CHECKING:
    import urllib3

#: The first example is the default.
EXAMPLES = ("orders", "envelope", "http", "two_way", "bulk", "component", "failures", "procurement", "lookup")

_SUSPENDED = (InstanceState.SUSPENDED, InstanceState.SUSPENDED_NOT_RESUMABLE)
#: Files that belong to the demo of an example, not to the application.
_IGNORED = ("demo.py", "__pycache__")

_POLL_SECONDS = 0.4
_PATIENCE_SECONDS, _HTTP_PATIENCE_SECONDS = 180.0, 60.0


def read_files(folder: Path) -> Iterator[bytes]:
    """Yield the contents of the files in an output folder. Files that are still being written are skipped."""
    for path in folder.glob("*"):
        if path.is_file() and not path.name.startswith("."):
            yield path.read_bytes()


#: The action of a step. It gets the home folder and a connection.
Act = Callable[[Path, Connection], None]


def drop_files(folder: str, contents: Mapping[str, bytes]) -> Act:
    """Return the action that writes files into a watched folder of the home."""

    def drop(home: Path, _: Connection) -> None:
        (home / folder).mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            (home / folder / name).write_bytes(content)

    return drop


def post_when_ready(
    pool: urllib3.PoolManager, path: str, content: bytes, *, headers: Mapping[str, str] | None = None
) -> urllib3.BaseHTTPResponse:
    """Post to the HTTP location of an example as soon as it is there. Return the response."""
    from urllib3.exceptions import HTTPError

    url = f"http://127.0.0.1:{os.environ.get('PORT', '8080')}{path}"
    deadline = time.monotonic() + _HTTP_PATIENCE_SECONDS
    while True:
        try:
            response = pool.request("POST", url, body=content, headers=headers)
            if response.status not in (404, 503):
                return response
            answer = f"{response.status} {response.reason}"
        except HTTPError as error:
            answer = str(error)
        if time.monotonic() > deadline:
            raise Unavailable(f"{url} does not answer.", why=answer)
        time.sleep(0.2)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a demo: an action, and the expected results of all steps so far.

    ``outputs`` are the expected contents of each folder of the home.
    ``suspended`` is the expected number of suspended instances by error code."""

    what: str
    act: Act
    outputs: Mapping[str, Counter[Any]]
    suspended: Counter[str] = field(default_factory=Counter)
    read_output: Callable[[Path], Iterable[Any]] = read_files

    def count_expected(self) -> Figures:
        delivered = Counter({folder: contents.total() for folder, contents in self.outputs.items()})
        return Figures(delivered=delivered, suspended=self.suspended)


@dataclass(frozen=True, kw_only=True)
class Figures:
    """The results so far: deliveries by folder, suspended instances by error code, and instances in the queues."""

    delivered: Counter[str] = field(default_factory=Counter)
    suspended: Counter[str] = field(default_factory=Counter)
    waiting: int = 0


@dataclass(frozen=True, kw_only=True)
class DemoResult:
    """The result of a demo. ``differences`` is empty if the demo succeeded."""

    expected: Figures
    actual: Figures
    differences: list[str]


#: Called at each poll with the current step and the figures.
Show = Callable[[str, Figures], None]


def get_example_folder(name: str) -> Path:
    """Return the folder of an example in the installed package."""
    return Path(str(files("postroom"))) / "examples" / name


def load_steps(name: str) -> list[Step]:
    return list(import_module(f"postroom.examples.{name}.demo").steps())


@contextmanager
def run_in_thread(supervisor: Supervisor) -> Iterator[None]:
    """Run a supervisor in a thread of its own until the context ends."""
    stop = threading.Event()
    failed: list[BaseException] = []

    def supervise() -> None:
        try:
            supervisor.run(stop)
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=supervise, name="supervisor")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]


def run_steps(
    connection: Connection,
    definition: ApplicationDefinition,
    steps: Sequence[Step],
    home: Path,
    show: Show,
    *,
    patience: float = _PATIENCE_SECONDS,
) -> DemoResult:
    """Run the steps with an application that is deployed and running, and compare the results.

    Raise StateError if nothing has changed for ``patience`` seconds."""
    services = [location.name for port in definition.receive_ports for location in port.locations]
    services += [port.name for port in definition.send_ports]
    for step in steps:
        step.act(home, connection)
        _wait(connection, services, step, home, show, patience)
    return DemoResult(
        expected=steps[-1].count_expected(),
        actual=_read_figures(connection, services, steps[-1], home),
        differences=_find_differences(steps[-1], home),
    )


def _wait(connection: Connection, services: Sequence[str], step: Step, home: Path, show: Show, patience: float) -> None:
    expected = step.count_expected()
    latest = Figures()
    deadline = time.monotonic() + patience
    while True:
        now = _read_figures(connection, services, step, home)
        show(step.what if now != Figures() else f"{step.what}; Spark is starting", now)
        if now == expected:
            return
        if now != latest:
            latest, deadline = now, time.monotonic() + patience
        if time.monotonic() > deadline:
            raise StateError(
                f"The demo has stopped: nothing has changed for {patience:.0f} seconds.",
                why="\n".join([f"Expected {expected}, found {now}.", *_find_differences(step, home)[:10]]),
                hint=f"The logs are in {home / '.postroom' / 'logs'}.",
            )
        time.sleep(_POLL_SECONDS)


def _read_figures(connection: Connection, services: Sequence[str], step: Step, home: Path) -> Figures:
    suspended: Counter[str] = Counter()
    waiting = 0
    for name in services:
        for group in count_instances(connection, InstanceQuery(port=name), "error"):
            if group.state in _SUSPENDED:
                suspended[str(group.value)] += group.count
            else:
                waiting += group.count
    delivered = {folder: sum(1 for _ in step.read_output(home / folder)) for folder in step.outputs}
    return Figures(delivered=Counter(delivered), suspended=suspended, waiting=waiting)


def _find_differences(step: Step, home: Path) -> list[str]:
    differences = []
    for folder, expected in step.outputs.items():
        arrived = Counter(step.read_output(home / folder))
        differences += [f"{folder} lacks {content!r}" for content in (expected - arrived).elements()]
        differences += [f"{folder} has unexpected {content!r}" for content in (arrived - expected).elements()]
    return differences


def find_example(name: str) -> Path:
    """Return the folder of an example. Raise NotFound if there is none with this name."""
    return get_example_folder(find_named({example: example for example in EXAMPLES}, name, "example"))


def write_application(folder: Path, example: str) -> list[Path]:
    """Copy an example into a new folder, as an application with the folder's name. Return the files written."""
    source = find_example(example)
    if folder.exists() and any(folder.iterdir()):
        raise StateError(f"{folder} is not empty.", hint="Name a folder that does not exist yet.")
    name = folder.absolute().name
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(*_IGNORED), dirs_exist_ok=True)
    app = folder / "app.py"
    declared = app.read_text(encoding="utf-8")
    literal = json.dumps(name, ensure_ascii=False)
    app.write_text(declared.replace(f'Application("{example}")', f"Application({literal})"), encoding="utf-8")
    return sorted(path for path in folder.rglob("*") if path.is_file())
