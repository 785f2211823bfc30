"""Files and HTTP requests, which Spark's tasks publish, pass the same tests as adapters that a host polls."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import partial
from http.client import HTTPConnection
from pathlib import Path

import pytest

from postroom import adapters
from postroom.adapters.contract import Committed, ReceiveAdapter
from postroom.conformance.receive_adapters import ReceiveAdapterConformance, Receiving, Source
from postroom.hosts import HostInstance, HostSettings
from postroom.messagebox.connection import Connection, Login, connect
from postroom.messagebox.intake.numbered_interchanges import read_numbered
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.receiving.files.file_receive_adapter import FileReceiveAdapter
from postroom.receiving.inbox_receive_adapter import InboxReceiveAdapter
from postroom.receiving.numbered_receive_adapter import NumberedReceiveAdapter
from postroom.spark.receive.task import SparkReceiveTask
from postroom.spark.worker import close_worker
from tests.integration.receiving.files.conftest import MovedClock
from tests.support.contents import Contents
from tests.support.file_location import read_numbered_claims
from tests.support.reserved_port import reserve_port
from tests.support.waiting import PATIENCE, wait_until


class Killed(BaseException):
    """The worker ends here."""


class KilledTask(SparkReceiveTask):
    """Ends before it cleans up."""

    def open_share(self, connection: Connection, share: Sequence[uuid.UUID]) -> NumberedReceiveAdapter:
        def end_process(committed: Sequence[Committed]) -> None:
            raise Killed

        receiver = super().open_share(connection, share)
        receiver.clean_up = end_process  # type: ignore[method-assign]
        return receiver


class FastClock(MovedClock):
    """A clock by which every scan repairs what an earlier one has left."""

    def __call__(self) -> datetime:
        self.move(3)
        return super().__call__()


class Folder:
    """A watched folder."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.definition: adapters.ReceiveDefinition = adapters.File(folder, settle=0)
        self._folder = folder
        self._number = 0

    def put(self, content: bytes) -> None:
        self._number += 1
        (self._folder / f"{self._number}.json").write_bytes(content)

    def count(self) -> int:
        return sum(path.is_file() for path in self._folder.rglob("*"))

    def break_down(self) -> None:
        self._folder.rename(self._folder.with_suffix(".away"))

    def repair(self) -> None:
        self._folder.with_suffix(".away").rename(self._folder)


class FileReceiving:
    """Claims files and receives them, as a pipeline process does."""

    steps: Sequence[str] = ("after a claim", "before a clean-up")

    def __init__(self, location: ReceiveLocation, url: str, home: Path) -> None:
        self._location = location
        self._login = Login(url=url, user=None)
        self._home = home

    def receive_all(self) -> None:
        self._receive(SparkReceiveTask)

    def kill_at(self, step: str) -> None:
        if step == "after a claim":
            self._receive(None)
            return
        with pytest.raises(Killed):
            self._receive(KilledTask)

    def _receive(self, task: type[SparkReceiveTask] | None) -> None:
        clock = MovedClock()
        with connect(self._login.url) as connection:
            claimer = FileClaimer(connection, self._location, self._home, clock, monotonic=clock.monotonic)
            try:
                for _ in range(3):
                    clock.move(3)
                    claimer.scan()
                    claims = read_numbered_claims(connection, self._location)
                    if task is not None:
                        task(location=self._location, home=self._home, login=self._login).receive(claims)
            finally:
                close_worker(self._login)


class TestFile(ReceiveAdapterConformance):
    @pytest.fixture
    def messagebox(self, database: str) -> str:
        return database

    @pytest.fixture
    def source(self, tmp_path: Path) -> Source:
        return Folder(tmp_path / "in")

    @pytest.fixture
    def receiving(self, location: ReceiveLocation, messagebox: str, tmp_path: Path) -> Receiving:
        return FileReceiving(location, messagebox, tmp_path)

    @pytest.fixture
    def make_adapter(
        self, location: ReceiveLocation, messagebox: str, tmp_path: Path
    ) -> Iterator[Callable[[], ReceiveAdapter]]:
        with ExitStack() as stack:

            def make() -> ReceiveAdapter:
                connection, clock = stack.enter_context(connect(messagebox)), FastClock()
                claimer = FileClaimer(
                    connection, location, tmp_path, clock, monotonic=clock.monotonic, makes_folder=False
                )
                return FileReceiveAdapter(connection, location, tmp_path, claimer=claimer)

            yield make


class Clients:
    """HTTP clients. The inbox has what they have sent."""

    def __init__(self, url: str, home: Path, port: int) -> None:
        self._port = port
        self.definition: adapters.ReceiveDefinition = adapters.HttpReceive("/orders", port=self._port)
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
        with connect(self._url) as connection:
            Contents(connection).hide_inbox()

    def repair(self) -> None:
        with connect(self._url) as connection:
            Contents(connection).show_inbox()

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
        self._receive(SparkReceiveTask)

    def kill_at(self, step: str) -> None:
        with pytest.raises(Killed):
            self._receive(KilledTask)

    def _receive(self, task: type[SparkReceiveTask]) -> None:
        with connect(self._login.url) as connection:
            InboxReceiveAdapter(connection, self._location, connect=partial(self._login.connect, "inbox")).scan()
            rows = read_numbered(connection, self._location.location_id, 0, 1 << 60)
            try:
                task(location=self._location, home=Path(), login=self._login).receive(rows)
            finally:
                close_worker(self._login)


class TestHttp(ReceiveAdapterConformance):
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

    @pytest.fixture
    def make_adapter(self, location: ReceiveLocation, messagebox: str) -> Iterator[Callable[[], ReceiveAdapter]]:
        with ExitStack() as stack:
            yield lambda: InboxReceiveAdapter(
                stack.enter_context(connect(messagebox)), location, connect=partial(connect, messagebox)
            )
