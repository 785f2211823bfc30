"""The hosts of an installation are replaced one after the other by those of another version, under load."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection, HTTPException
from pathlib import Path

import pytest

import postroom
from postroom import adapters, pipelines
from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import run_all_jobs_once
from postroom.messagebox.migrate import is_current, migrate
from tests.support.box import PROMOTE, Box, Region
from tests.support.http_receiver import Handler, http_receiver
from tests.support.inbox_location import add_inbox_location
from tests.support.reserved_port import reserve_port
from tests.support.two_way import make_location_two_way, make_two_way
from tests.support.waiting import PATIENCE, wait_until

OLD_VERSION = "0.0.9"
PROCEDURE = Path("messagebox", "procedures", "host", "complete_messages.sql")
CLIENTS = 4


def copy_old_version(folder: Path) -> Path:
    """Copy the package, with another version number and another text of a procedure. Return the folder to import it
    from."""
    package = folder / "postroom"
    shutil.copytree(Path(postroom.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    init = package / "__init__.py"
    init.write_text(init.read_text().replace(f'"{postroom.__version__}"', f'"{OLD_VERSION}"'))
    procedure = package / PROCEDURE
    procedure.write_text(f"-- Version {OLD_VERSION}.\n{procedure.read_text()}")
    return folder


class Hosts:
    """Host processes of one or more versions."""

    def __init__(self, box: Box, home: Path) -> None:
        self._box = box
        self._home = home
        self._stack = ExitStack()

    def __enter__(self) -> Hosts:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def start(self, version: Path | None = None) -> subprocess.Popen[bytes]:
        """Start a host process of the version in this folder, or of the current one. Return when it is registered."""
        environment = {**os.environ, **({"PYTHONPATH": str(version)} if version is not None else {})}
        command = [sys.executable, "-m", "postroom", "host", "run", "Default", "--home", str(self._home)]
        process = self._stack.enter_context(
            subprocess.Popen([*command, "--database", self._box.url], env=environment, cwd=self._home)
        )
        self._stack.callback(process.kill)
        wait_until(lambda: process.pid in self.list_registered(), what="the host to register")
        return process

    def list_registered(self) -> list[int]:
        return [one.pid for one in self._box.host_instances()]

    def stop(self, process: subprocess.Popen[bytes]) -> None:
        process.send_signal(signal.SIGTERM)
        assert process.wait(PATIENCE) == 0
        assert process.pid not in self.list_registered()


class Load:
    """Publishes orders, and sends requests whose clients wait for the response, until it is stopped."""

    def __init__(self, box: Box, port: int) -> None:
        self._box = box
        self._port = port
        self._stopping = threading.Event()
        self.published: set[uuid.UUID] = set()
        #: The number of requests by their result: answered, told (503), and closed (the connection).
        self.results: Counter[str] = Counter()
        self.wrong: list[object] = []
        self._threads = [
            threading.Thread(target=self._publish),
            *(threading.Thread(target=self._ask, args=(number,)) for number in range(CLIENTS)),
        ]

    @contextmanager
    def run(self) -> Iterator[None]:
        for thread in self._threads:
            thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            for thread in self._threads:
                thread.join()

    def _publish(self) -> None:
        with connect(self._box.url) as connection:
            agent = self._box.agent(connection=connection)
            while not self._stopping.wait(0.005):
                [published] = agent.publish([Message.of(b"{}", promoted={Region: "US"})])
                self.published.add(published.message_id)

    def _ask(self, client: int) -> None:
        number = client
        while not self._stopping.wait(0.005):
            number += CLIENTS
            connection = HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
            try:
                connection.request("POST", "/quotes", json.dumps({"region": "EU", "n": number}))
                response = connection.getresponse()
                content = response.read()
            except (OSError, HTTPException):
                self.results["closed"] += 1
                continue
            finally:
                connection.close()
            if response.status == 200 and json.loads(content)["n"] == number:
                self.results["answered"] += 1
            elif response.status == 503:
                self.results["told"] += 1
            else:
                self.wrong.append((number, response.status, content))


def echo(handler: Handler) -> None:
    handler.respond(200, handler.take().body)


@pytest.fixture
def port() -> Iterator[int]:
    with reserve_port() as reserved:
        yield reserved


@pytest.mark.sample("hosts under load")
def test_a_rolling_restart_with_another_version_loses_nothing(box: Box, tmp_path: Path, port: int) -> None:
    old_version = copy_old_version(tmp_path / "old")
    migrate_old = "import sys, postroom.messagebox.migrate as m; m.migrate(sys.argv[1]); print(m.__file__)"
    environment = {**os.environ, "PYTHONPATH": str(old_version)}
    migrated = subprocess.check_output([sys.executable, "-c", migrate_old, box.url], env=environment, text=True)
    assert migrated.startswith(str(old_version))
    assert not is_current(box.connection)

    out = tmp_path / "out"
    receive = adapters.HttpReceive("/quotes", port=port)
    make_location_two_way(box, add_inbox_location(box, pipeline=pipelines.Json(promote=PROMOTE), adapter=receive))
    box.add_port("America", "Orders.Region == 'US'", adapter=adapters.File(out).model_dump(mode="json"))
    with http_receiver() as receiver, Hosts(box, tmp_path) as hosts:
        receiver.behave = echo
        box.add_port("Pricing", "Orders.Region == 'EU'", adapter=adapters.Http(receiver.url).model_dump(mode="json"))
        make_two_way(box, "Pricing")
        load = Load(box, port)

        def wait_for_more() -> None:
            """Wait until messages are delivered, and requests answered, by the processes that run now."""
            delivered, answered = len(list(out.glob("*"))), load.results["answered"]
            wait_until(lambda: len(list(out.glob("*"))) > delivered + 20, what="delivered messages")
            wait_until(lambda: load.results["answered"] > answered + 20, what="answered requests")

        first, second = hosts.start(old_version), hosts.start(old_version)
        with load.run():
            wait_for_more()
            migrate(box.url)
            assert is_current(box.connection)
            wait_for_more()
            hosts.stop(first)
            wait_for_more()
            first = hosts.start()
            wait_for_more()
            hosts.stop(second)
            wait_for_more()
            second = hosts.start()
            wait_for_more()
        assert load.wrong == []
        assert load.results["told"] == 0, "a host that stops answers the waiting clients first"
        wait_until(lambda: box.count("queued") + box.count("scheduled") == 0, what="empty queues")
        for process in (first, second):
            hosts.stop(process)
    assert {path.name.partition(".")[0] for path in out.glob("*")} == {str(each) for each in load.published}
    assert box.count("suspended") == 0
    run_all_jobs_once(box.connection)
    assert check(box.connection) == []
