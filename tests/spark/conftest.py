from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from postroom.messagebox.connection import Login, connect
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.file_claimer import FileClaimer
from tests.support.box import Box
from tests.support.folders import open_folder
from tests.support.waiting import PATIENCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

StartStream = Callable[..., "StreamingQuery"]
ClaimFiles = Callable[[ReceiveLocation], int]


@pytest.fixture(scope="package")
def session() -> Iterator[SparkSession]:
    """The session of the tests in this folder, in a home with a space and a long path. Streams have a long time to
    stop. It ends before the next test of the worker, which may start a session of its own."""
    from tests.support.spark_session import open_session

    with open_folder() as folder:
        home = folder / "a home" / ("with a long path " * 8).strip()
        settings = {"spark.sql.streaming.stopTimeout": f"{PATIENCE}s"}
        with open_session(home, master="local[2]", settings=settings) as opened:
            yield opened


@pytest.fixture
def login(box: Box) -> Login:
    return Login(url=box.url, user=box.host().role_name)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A watched folder, with a space in its path."""
    folder = tmp_path / "drop box"
    folder.mkdir()
    return folder


@pytest.fixture
def claim(login: Login, tmp_path: Path) -> Iterator[ClaimFiles]:
    """Claim the files in the folder of a location, once."""
    with ExitStack() as stack:
        claimers: dict[str, FileClaimer] = {}

        def claim_now(location: ReceiveLocation) -> int:
            if location.name not in claimers:
                connection = stack.enter_context(connect(login.url, user=login.user))
                claimers[location.name] = FileClaimer(connection, location, tmp_path)
            return claimers[location.name].scan().claimed

        yield claim_now


@pytest.fixture
def start_stream(session: SparkSession, login: Login, tmp_path: Path) -> Iterator[StartStream]:
    """Start streams that end with the test."""
    from postroom.spark.receive import stream as receive_stream

    started: list[StreamingQuery] = []

    def start(location: ReceiveLocation, **settings: object) -> StreamingQuery:
        query = receive_stream.start_stream(session, location, login=login, home=tmp_path, **settings)  # type: ignore[arg-type]
        started.append(query)
        return query

    yield start
    for query in started:
        query.stop()
