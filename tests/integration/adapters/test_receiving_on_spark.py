"""Files and HTTP requests, which Spark's tasks publish, pass the same tests as adapters that a host polls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from postroom import adapters
from postroom.conformance.receive_adapters import Receiving, ReceivingConformance, Source
from postroom.hosts import HostInstance, HostSettings
from postroom.messagebox import inbox
from postroom.messagebox.connection import Login, connect
from postroom.messagebox.streams import file_claims
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.claimed_files import ClaimedFiles
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.receiving.inbox_rows import Inbox, InboxNumbering
from postroom.spark.receive.task import SparkReceiveTask
from postroom.spark.worker import close_worker
from tests.integration.receiving.files.conftest import MovedClock
from tests.support.contents import Contents
from tests.support.reserved_port import reserve_port
from tests.support.waiting import PATIENCE, wait_until


class Killed(BaseException):
    """The worker ends here."""


class KilledFiles(ClaimedFiles):
    def finish(self, connection: Any, items: Any) -> None:
        raise Killed


class KilledInbox(Inbox):
    def finish(self, connection: Any, items: Any) -> None:
        raise Killed


class Folder:
    """A watched folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.definition: adapters.AdapterDefinition = adapters.File(folder, settle=0)
        self._folder = folder
        self._number = 0

    def put(self, content: bytes) -> None:
        self._number += 1
        (self._folder / f"{self._number}.json").write_bytes(content)

    def count(self) -> int:
        return sum(path.is_file() for path in self._folder.rglob("*"))

    def break_down(self) -> None:
        raise NotImplementedError

    def repair(self) -> None:
        raise NotImplementedError


class FileReceiving:
    """Claims files and receives them, as a pipeline process does."""

    steps: Sequence[str] = ("after a claim", "before a clean-up")

    def __init__(self, location: ReceiveLocation, url: str, home: Path) -> None:
        self._location = location
        self._login = Login(url=url, user=None)
        self._home = home

    def receive_all(self) -> None:
        self._receive(ClaimedFiles(location=self._location, home=self._home))

    def kill_at(self, step: str) -> None:
        if step == "after a claim":
            self._receive(None)
            return
        with pytest.raises(Killed):
            self._receive(KilledFiles(location=self._location, home=self._home))

    def _receive(self, source: ClaimedFiles | None) -> None:
        clock = MovedClock()
        with connect(self._login.url) as connection:
            claimer = FileClaimer(connection, self._location, self._home, clock, monotonic=clock.monotonic)
            try:
                for _ in range(3):
                    clock.move(3)
                    claimer.scan()
                    claims = file_claims.read_numbered(connection, self._location.location_id, 0, 1 << 60)
                    if source is not None:
                        SparkReceiveTask(source=source, login=self._login).receive(claims)
            finally:
                close_worker(self._login)


class TestFile(ReceivingConformance):
    @pytest.fixture
    def messagebox(self, database: str) -> str:
        return database

    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        return Folder(tmp_path / "in")

    @pytest.fixture
    def receiving(self, location: ReceiveLocation, messagebox: str, tmp_path: Path) -> Receiving:
        return FileReceiving(location, messagebox, tmp_path)


class Clients:
    """HTTP clients. The inbox has what they have sent."""

    def __init__(self, url: str, home: Path, port: int) -> None:
        self._port = port
        self.definition: adapters.AdapterDefinition = adapters.HttpReceive("/orders", port=self._port)
        self._url = url
        self._start = partial(HostInstance, url, "Main", home, settings=HostSettings(runs_jobs=False))
        self._host: HostInstance | None = None

    def put(self, content: bytes) -> None:
        if self._host is None:
            self._host = self._start()
            self._host.start()
        host = self._host
        wait_until(lambda: host.http.ports)
        connection = HTTPConnection("127.0.0.1", self._port, timeout=PATIENCE)
        connection.request("POST", "/orders", body=content)
        assert connection.getresponse().status == 202
        connection.close()

    def count(self) -> int:
        with connect(self._url) as connection:
            return Contents(connection).count("inbox")

    def break_down(self) -> None:
        raise NotImplementedError

    def repair(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        if self._host is not None:
            self._host.stop()


class InboxReceiving:
    """Receives the rows of the inbox, as a pipeline process does."""

    steps: Sequence[str] = ("before a clean-up",)

    def __init__(self, location: ReceiveLocation, url: str) -> None:
        self._location = location
        self._login = Login(url=url, user=None)

    def receive_all(self) -> None:
        self._receive(Inbox(location=self._location, login=self._login))

    def kill_at(self, step: str) -> None:
        with pytest.raises(Killed):
            self._receive(KilledInbox(location=self._location, login=self._login))

    def _receive(self, source: Inbox) -> None:
        with connect(self._login.url) as connection:
            InboxNumbering(connection, self._location).scan()
            rows = inbox.read_numbered(connection, self._location.location_id, 0, 1 << 60)
            try:
                SparkReceiveTask(source=source, login=self._login).receive(rows)
            finally:
                close_worker(self._login)


class TestHttp(ReceivingConformance):
    @pytest.fixture
    def messagebox(self, database: str) -> str:
        return database

    @pytest.fixture
    def source(self, messagebox: str, tmp_path: Path) -> Iterator[Source]:
        with reserve_port() as port:
            clients = Clients(messagebox, tmp_path, port)
            yield clients
            clients.close()

    @pytest.fixture
    def receiving(self, location: ReceiveLocation, messagebox: str) -> Receiving:
        return InboxReceiving(location, messagebox)
