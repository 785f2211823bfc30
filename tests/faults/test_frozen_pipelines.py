"""A process that receives, writes a sink or creates a backup is frozen for ever (SIGSTOP), at each step of its work.

Another process does the work, each message once. `make faults` runs all points, and `make test` one of each test.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from postroom.adapters import SparkTable
from postroom.message import Context
from postroom.messagebox.connection import Login, connect
from postroom.messagebox.coordination.session_watchdog import SessionWatchdog
from postroom.messagebox.intake import inbox
from postroom.messagebox.intake.numbered_interchanges import read_numbered
from postroom.messagebox.maintenance.check import check
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.receiving.inbox_receive_adapter import InboxReceiveAdapter
from postroom.spark.receive.task import SparkReceiveTask
from postroom.spark.worker import close_worker
from tests.faults.frozen_peers import (
    OTHERS_CONTINUE,
    PIPELINES_ARE_REPLACED,
    SINK_POINTS,
    allow,
    drain_if_free,
    drain_sink,
)
from tests.integration.messagebox.intake import interrupted_receiver
from tests.integration.operations.backup import interrupted_backup
from tests.integration.receiving.files import interrupted_claimer
from tests.support.box import Box, Region
from tests.support.file_location import add_file_location, read_numbered_claims
from tests.support.inbox_location import add_inbox_location
from tests.support.interrupted_process import frozen_process
from tests.support.sinks import add_sink, make_drain, publish
from tests.support.waiting import wait_until

FILES = 4
#: The points that are passed if the archive is on the file system of the watched folder.
CLAIM_POINTS = [point for point in interrupted_claimer.POINTS if point not in interrupted_claimer.COPY_POINTS]


@pytest.fixture(autouse=True)
def watchdog(box: Box) -> Iterator[None]:
    """The watchdog of a host that runs somewhere."""
    role = box.host().role_name
    watchdog = SessionWatchdog(lambda: connect(box.url, user=role, application_name="postroom host Default"))
    watchdog.loop.start()
    yield
    watchdog.loop.stop()
    watchdog.loop.join()
    watchdog.close()


@pytest.fixture
def login(box: Box) -> Iterator[Login]:
    login = Login(url=box.url, user=box.host().role_name)
    yield login
    close_worker(login)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "home" / "in").mkdir(parents=True)
    return tmp_path / "home"


def receive_files(box: Box, login: Login, location: ReceiveLocation, home: Path, *, within: float) -> None:
    """Scan and receive, as another pipeline does, until nothing is left."""
    task = SparkReceiveTask(location=location, home=home, login=login)
    with connect(login.url, user=login.user, application_name="postroom location") as connection:
        claimer = FileClaimer(connection, location, home)

        def is_done() -> bool:
            if claimer.scan().active:
                task.receive(read_numbered_claims(connection, location))
            return not box.count("file claims") and not any(path.is_file() for path in (home / "in").rglob("*"))

        wait_until(is_done, allow(within), what="an empty folder and an empty table")


@pytest.mark.sample
@pytest.mark.parametrize("point", CLAIM_POINTS)
def test_another_process_receives_the_files_of_a_frozen_one(box: Box, login: Login, home: Path, point: str) -> None:
    box.add_port("Everything", "exists(Region)")
    archive = home / "archive"
    location = add_file_location(box, home / "in", archive=archive if "archive" in point else None)
    for number in range(FILES):
        (home / "in" / f"{number}.json").write_bytes(b'{"region": "EU", "number": %d}' % number)
    with frozen_process(interrupted_claimer.main, box.url, str(login.user), location.name, str(home), point):
        receive_files(box, login, location, home, within=PIPELINES_ARE_REPLACED)
    assert box.queued() == {"Everything": FILES}
    assert box.suspended() == []
    assert check(box.connection) == []
    if "archive" in point:
        assert {path.name for path in archive.iterdir()} == {f"{number}.json" for number in range(FILES)}


@pytest.mark.sample
@pytest.mark.parametrize("point", interrupted_receiver.POINTS)
def test_another_process_receives_the_interchanges_of_a_frozen_one(box: Box, login: Login, point: str) -> None:
    box.add_port("Everything", "exists(Region)")
    location = add_inbox_location(box)
    task = SparkReceiveTask(location=location, home=Path(), login=login)
    with (
        frozen_process(interrupted_receiver.main, box.url, str(login.user), location.name, point),
        connect(login.url, user=login.user, application_name="postroom host Default") as host,
        connect(login.url, user=login.user, application_name="postroom location") as pipeline,
    ):
        # A sender without an answer repeats the request with the same idempotency key.
        for interchange_id, content in interrupted_receiver.CONTENTS.items():
            if not inbox.check_if_known(host, interchange_id):
                inbox.store_in_inbox(host, location.location_id, interchange_id, Context(), [content])
        numbering = InboxReceiveAdapter(pipeline, location, connect=partial(login.connect, "inbox"))

        def is_done() -> bool:
            if numbering.scan().active:
                task.receive(read_numbered(pipeline, location.location_id, 0, 1 << 60))
            return box.count("inbox") == 0

        wait_until(is_done, allow(PIPELINES_ARE_REPLACED), what="an empty inbox")
    assert box.queued() == {"Everything": len(interrupted_receiver.CONTENTS)}
    assert check(box.connection) == []


@pytest.mark.sample
@pytest.mark.parametrize("point", SINK_POINTS)
def test_another_process_writes_the_messages_of_a_frozen_sink(box: Box, home: Path, point: str) -> None:
    box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
    add_sink(box, SparkTable(box.url, "public.orders", columns=[Region], max_messages=2))
    ids = publish(box, b"a", b"b", b"c")
    with frozen_process(drain_sink, box.url, str(home), point):
        wait_until(
            lambda: drain_if_free(box, make_drain(box, home)),
            allow(PIPELINES_ARE_REPLACED),
            what="the lock of the sink",
        )
    rows = box.connection.execute("SELECT message_id::text FROM public.orders").fetchall()
    assert Counter(message_id for (message_id,) in rows) == Counter(ids)
    assert (box.count("sink batches"), box.count("queued")) == (0, 0)
    assert check(box.connection) == []


@pytest.mark.sample
@pytest.mark.parametrize("point", interrupted_backup.POINTS)
def test_files_are_received_while_a_backup_is_frozen(box: Box, login: Login, home: Path, point: str) -> None:
    box.add_port("Everything", "exists(Region)")
    location = add_file_location(box, home / "in")
    (home / "in" / "first.json").write_bytes(b'{"region": "EU"}')
    with connect(login.url, user=login.user) as connection:
        assert FileClaimer(connection, location, home).scan().claimed == 1
    with frozen_process(interrupted_backup.main, box.url, str(home), str(home.parent / "backup"), point):
        (home / "in" / "second.json").write_bytes(b'{"region": "EU"}')
        receive_files(box, login, location, home, within=OTHERS_CONTINUE)
    assert box.queued() == {"Everything": 2}
    assert check(box.connection) == []
