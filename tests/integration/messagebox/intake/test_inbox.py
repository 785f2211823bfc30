"""The inbox: interchanges that an adapter has accepted are published once, in any order of commits."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from postroom import Throttling, pipelines
from postroom.agent.poison_messages import MAX_ATTEMPTS
from postroom.agent.streaming.receiver import Receiver
from postroom.errors import NotAllowed, Unavailable
from postroom.message import FRAGMENT_SIZE, Context
from postroom.messagebox.connection import Connection, Login, connect
from postroom.messagebox.intake import inbox
from postroom.messagebox.throttling.pace import Pace
from postroom.monitoring.logs import JsonFormatter
from postroom.ports.receive_locations import ReceiveLocation
from postroom.receiving import task as receive_task
from postroom.receiving.inbox_receive_adapter import InboxReceiveAdapter
from postroom.receiving.task import MILLISECONDS
from postroom.spark.receive.stream_source import NumberedReader, StreamSettings
from postroom.spark.receive.task import SparkReceiveTask, make_tally
from postroom.system_properties import BTS
from tests.integration.messagebox.intake.conftest import Connect, StoreInterchange, rows_of, waiting
from tests.support.box import PROMOTE, Box
from tests.support.host_settings import set_thresholds
from tests.support.inbox_location import add_inbox_location
from tests.support.simulated_load import set_load


def test_a_backlog_is_numbered_in_several_rounds(
    box: Box,
    location: ReceiveLocation,
    connect_as_host: Connect,
    store_interchange: StoreInterchange,
    task: SparkReceiveTask,
) -> None:
    for _ in range(5):
        store_interchange()
    numbering = InboxReceiveAdapter(connect_as_host(), location, connect=connect_as_host, batch_size=2)
    rounds: list[int] = []
    has_more = True
    while has_more:
        has_more = numbering.scan().more
        rounds.append(len(task.receive(waiting(box, location))))
    assert rounds == [2, 2, 1]
    assert box.queued() == {"Everything": 5}


def test_a_row_that_is_committed_late_is_read_once(
    box: Box, location: ReceiveLocation, login: Login, connect_as_host: Connect, numbering: InboxReceiveAdapter
) -> None:
    settings = StreamSettings(login=login, location_id=location.location_id, partitions=1, max_rows=100)
    reader = NumberedReader(settings)
    first, second = connect_as_host(), connect_as_host()
    early, late = uuid.uuid4(), uuid.uuid4()

    def new_rows(start: dict[str, int]) -> tuple[list[uuid.UUID], dict[str, int]]:
        from pyspark.sql.streaming.datasource import ReadMaxFiles

        numbering.scan()
        end = reader.latestOffset(start, ReadMaxFiles(100))
        found = [row.interchange_id for part in reader.partitions(start, end) for row in part.rows]  # type: ignore[attr-defined]
        return found, end

    with first.transaction():
        inbox.store_in_inbox(first, location.location_id, early, Context(), [b"{}"])
        with second.transaction():
            inbox.store_in_inbox(second, location.location_id, late, Context(), [b"{}"])
        # The second transaction started later and is committed. The first one is still open.
        empty, start = new_rows(reader.initialOffset())
        assert empty == []  # the first batch starts the workers
        found, offset = new_rows(start)
        assert found == [late]
        found, offset = new_rows(offset)
        assert found == []
    found, offset = new_rows(offset)
    assert found == [early]
    found, _ = new_rows(offset)
    assert found == []
    reader.stop()


def test_a_long_transaction_elsewhere_does_not_delay_the_inbox(
    box: Box, location: ReceiveLocation, store_interchange: StoreInterchange, numbering: InboxReceiveAdapter
) -> None:
    with connect(box.url) as other, other.transaction():
        other.execute("CREATE TABLE elsewhere ()")  # has a transaction id older than all that follow
        one = store_interchange()
        numbering.scan()
        assert [row.interchange_id for row in waiting(box, location)] == [one]


def test_an_interchange_is_published_with_its_context_and_deleted(
    box: Box,
    location: ReceiveLocation,
    connect_as_host: Connect,
    numbering: InboxReceiveAdapter,
    task: SparkReceiveTask,
) -> None:
    one = uuid.uuid4()
    context = Context().write(BTS.SourceParty, "somebody")
    assert inbox.store_in_inbox(connect_as_host(), location.location_id, one, context, [b'{"region": ', b'"EU"}'])
    numbering.scan()
    [received] = task.receive(waiting(box, location))
    assert (received.interchange_id, received.published) == (one, 1)
    assert box.queued() == {"Everything": 1}
    assert box.count("inbox") == 0
    stored = Context.from_json(box.one("SELECT context FROM spool"))
    assert stored[BTS.SourceParty] == "somebody"
    assert stored[BTS.InterchangeID] == str(one)
    assert stored[BTS.InboundTransportType] == "HTTP"
    assert box.one("SELECT body FROM parts") == b'{"region": "EU"}'


def test_an_unreadable_interchange_is_suspended_with_its_bytes(
    box: Box,
    location: ReceiveLocation,
    store_interchange: StoreInterchange,
    numbering: InboxReceiveAdapter,
    task: SparkReceiveTask,
) -> None:
    store_interchange(b"{broken")
    numbering.scan()
    [received] = task.receive(waiting(box, location))
    assert received.suspended == 1
    assert box.suspended() == [("PIPELINE", True)]
    assert box.one("SELECT body FROM parts") == b"{broken"
    assert box.count("inbox") == 0


@pytest.mark.parametrize("size", [0, 1, FRAGMENT_SIZE, FRAGMENT_SIZE + 1, 3 * FRAGMENT_SIZE, 25 * FRAGMENT_SIZE + 7])
def test_bodies_of_any_size_are_unchanged(box: Box, login: Login, connect_as_host: Connect, size: int) -> None:
    box.add_port("Everything", "exists(BTS.ReceivePortName)")
    location = add_inbox_location(box, pipeline=pipelines.PassThrough())
    content = bytes(number % 251 for number in range(size))
    pieces = (content[start : start + 40_000] for start in range(0, size, 40_000))
    one = uuid.uuid4()
    inbox.store_in_inbox(connect_as_host(), location.location_id, one, Context(), pieces)
    assert box.one("SELECT size FROM inbox") == size
    assert box.count("inbox fragments") == (0 if size <= FRAGMENT_SIZE else -(-size // FRAGMENT_SIZE))
    InboxReceiveAdapter(connect_as_host(), location, connect=connect_as_host).scan()
    [received] = SparkReceiveTask(location=location, home=Path(), login=login).receive(rows_of(one))
    assert received.published == 1
    stored = box.one("SELECT body FROM parts")
    if stored is None:
        rows = box.connection.execute("SELECT body FROM fragments ORDER BY number").fetchall()
        stored = b"".join(body for (body,) in rows)
    assert stored == content
    assert box.count("inbox") == box.count("inbox fragments") == 0


def test_content_that_is_cut_short_is_not_stored(box: Box, location: ReceiveLocation, connect_as_host: Connect) -> None:
    def broken() -> Iterator[bytes]:
        yield bytes(5 * FRAGMENT_SIZE)
        raise ConnectionResetError

    connection = connect_as_host()
    with pytest.raises(ConnectionResetError):
        inbox.store_in_inbox(connection, location.location_id, uuid.uuid4(), Context(), broken())
    assert box.count("inbox") == box.count("inbox fragments") == 0
    assert inbox.store_in_inbox(connection, location.location_id, uuid.uuid4(), Context(), [b"{}"])


def test_a_repeated_interchange_is_detected_before_and_after_the_publish(
    box: Box,
    location: ReceiveLocation,
    store_interchange: StoreInterchange,
    numbering: InboxReceiveAdapter,
    task: SparkReceiveTask,
) -> None:
    one = uuid.uuid4()
    assert not inbox.check_if_known(box.connection, one)
    store_interchange(interchange_id=one)
    assert inbox.check_if_known(box.connection, one)
    store_interchange(interchange_id=one)
    assert box.count("inbox") == 1
    numbering.scan()
    task.receive(rows_of(one))
    assert inbox.check_if_known(box.connection, one)
    # A repeat that was checked just before the commit of the publish goes through the stream and publishes nothing.
    store_interchange(interchange_id=one)
    numbering.scan()
    [again] = task.receive(waiting(box, location))
    assert again.published == 0
    assert box.queued() == {"Everything": 1}
    assert box.count("inbox") == 0


def test_an_interchange_that_cannot_be_received_is_quarantined_and_does_not_delay_other_interchanges(
    box: Box,
    location: ReceiveLocation,
    store_interchange: StoreInterchange,
    numbering: InboxReceiveAdapter,
    task: SparkReceiveTask,
) -> None:
    ids = [store_interchange() for _ in range(3)]
    # An invalid context, which no adapter writes.
    box.connection.execute(
        "UPDATE inbox SET context = %s WHERE interchange_id = %s",
        ('{"written": {"BTS#SourceParty": {"unknown": 1}}}', ids[1]),
    )
    numbering.scan()
    task.receive(waiting(box, location))
    assert box.queued() == {"Everything": 2}
    assert "could not be received" in box.one("SELECT problem FROM inbox")
    numbering.scan()
    assert waiting(box, location) == []
    # The next start retries it.
    box.connection.execute("UPDATE inbox SET context = '{}'")
    numbering.close()
    with connect(box.url) as connection:
        InboxReceiveAdapter(connection, location, connect=partial(connect, box.url)).scan()
    task.receive(waiting(box, location))
    assert box.queued() == {"Everything": 3}
    assert box.count("inbox") == 0


def test_a_poison_message_is_suspended_after_the_last_attempt(
    box: Box,
    location: ReceiveLocation,
    store_interchange: StoreInterchange,
    numbering: InboxReceiveAdapter,
    task: SparkReceiveTask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class WorkerDied(BaseException):
        pass

    store_interchange(b'{"region": "poison"}')
    store_interchange()
    numbering.scan()
    receive = Receiver.receive

    def poisoned(self: Receiver, location: ReceiveLocation, given: Any, **settings: Any) -> object:
        if "poison" in str(given):
            raise WorkerDied
        return receive(self, location, given, **settings)

    monkeypatch.setattr(Receiver, "receive", poisoned)
    with pytest.raises(WorkerDied):
        task.receive(waiting(box, location))
    for attempt in range(1, MAX_ATTEMPTS + 1):
        with pytest.raises(WorkerDied):
            task.receive(waiting(box, location), isolated=True)
        assert box.receive_attempts() == [attempt]
    task.receive(waiting(box, location), isolated=True)
    assert box.queued() == {"Everything": 1}
    assert box.suspended() == [("PIPELINE", True)]
    assert b'{"region": "poison"}' in [body for (body,) in box.connection.execute("SELECT body FROM parts")]
    assert box.count("inbox") == 0


def test_a_connection_that_breaks_while_a_component_reads_does_not_suspend_the_message(
    box: Box, store_interchange: StoreInterchange, connect_as_host: Connect
) -> None:
    one = store_interchange(b"x" * (3 * FRAGMENT_SIZE))

    def broken() -> Connection:
        reading = connect_as_host()
        box.connection.execute("SELECT pg_terminate_backend(%s, 10000)", (reading.info.backend_pid,))
        return reading

    body = inbox.FragmentedInboxBody(connect=broken, interchange_id=one, size=3 * FRAGMENT_SIZE)
    with pytest.raises(Unavailable, match="not available at the moment"):
        list(pipelines.Receive(decode=[pipelines.components.Gzip()]).disassemble(body))


def test_only_one_process_numbers_the_inbox_of_a_location(
    location: ReceiveLocation, numbering: InboxReceiveAdapter, connect_as_host: Connect
) -> None:
    other = InboxReceiveAdapter(connect_as_host(), location, connect=connect_as_host)
    assert numbering.scan().active
    assert not other.scan().active
    numbering.close()
    assert other.scan().active


def test_receipts_are_kept_as_long_as_the_row(
    box: Box,
    location: ReceiveLocation,
    store_interchange: StoreInterchange,
    numbering: InboxReceiveAdapter,
    task: SparkReceiveTask,
) -> None:
    one = store_interchange()
    numbering.scan()
    task.receive(rows_of(one))
    store_interchange(interchange_id=one)
    purge = "SELECT purge_receipts('7 days', now() + interval '30 days')"
    assert box.one(purge) == 0
    box.connection.execute("DELETE FROM inbox")
    assert box.one(purge) == 1


def test_a_host_can_only_use_the_inboxes_of_its_own_locations(box: Box, location: ReceiveLocation) -> None:
    other = box.add_host("Other")
    one = uuid.uuid4()
    with connect(box.url, user=box.host().role_name) as connection:
        inbox.store_in_inbox(connection, location.location_id, one, Context(), [bytes(2 * FRAGMENT_SIZE)])
        for changed in ("context = '{}'", "body = 'x'", "stored_by = 'me'", "location_id = gen_random_uuid()"):
            with pytest.raises(NotAllowed):
                connection.execute(f"UPDATE inbox SET {changed}".encode())
    with connect(box.url, user=other.role_name) as connection:
        with pytest.raises(NotAllowed):
            inbox.store_in_inbox(connection, location.location_id, uuid.uuid4(), Context(), [b"forged"])
        with pytest.raises(NotAllowed):
            connection.execute("INSERT INTO inbox_fragments VALUES (%s, 7, 'forged')", (one,))
        assert connection.execute("SELECT 1 FROM inbox").fetchall() == []
        assert connection.execute("SELECT 1 FROM inbox_fragments").fetchall() == []
        assert connection.execute("DELETE FROM inbox").rowcount == 0
    assert box.count("inbox") == 1
    assert box.one("SELECT stored_by FROM inbox") == box.host().role_name


def test_a_throttled_interchange_continues_where_it_was_left(
    box: Box,
    numbering: InboxReceiveAdapter,
    store_interchange: StoreInterchange,
    task: SparkReceiveTask,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A task ends after its maximum wait and gives back what it has not published (THR-05)."""
    monkeypatch.setattr("postroom.agent.streaming.interchange.CHUNK_ROWS", 10)
    monkeypatch.setattr("postroom.agent.streaming.receiver.CHUNK_ROWS", 10)
    location = add_inbox_location(box, name="lines", pipeline=pipelines.JsonLines(promote=PROMOTE))
    set_thresholds(box.connection, box.host().host_id, Throttling(messages=10, longest_delay=300))
    set_load(box, queued=100)
    monkeypatch.setattr(receive_task, "Pace", partial(Pace, sleep=lambda seconds: None))
    task = replace(task, location=location, paced=True)
    ids = [store_interchange(b'{"region": "EU"}\n' * 25), store_interchange(b'{"region": "EU"}\n' * 5)]
    numbers = "SELECT array_agg(number ORDER BY stored_at) FROM inbox"
    numbering.scan()
    first = box.one(numbers)
    assert sum(interchange.published for interchange in task.receive(rows_of(*ids))) == 10
    assert box.one(numbers) == [None, None]
    numbering.scan()
    assert min(box.one(numbers)) > max(first)
    set_load(box, queued=0)
    assert sum(interchange.published for interchange in task.receive(rows_of(*ids))) == 20
    assert box.count("inbox") == 0


def test_a_line_of_the_log_about_an_interchange_has_its_id(
    store_interchange: StoreInterchange, task: SparkReceiveTask, caplog: pytest.LogCaptureFixture
) -> None:
    interchange_id = store_interchange(b"no JSON")
    task.receive(rows_of(interchange_id))
    [record] = [one for one in caplog.records if "suspended instance" in one.message]
    entry = json.loads(JsonFormatter().format(record))
    assert entry["interchange_id"] == str(interchange_id)


def test_the_time_from_the_arrival_of_interchanges_to_their_publication_is_measured(
    box: Box, store_interchange: StoreInterchange, task: SparkReceiveTask
) -> None:
    ids = [store_interchange() for _ in range(2)]
    box.connection.execute("UPDATE inbox SET stored_at = stored_at - interval '1 hour'")
    [tally] = make_tally(task.receive(rows_of(*ids))).to_pylist()
    assert (tally["files"], tally["published"]) == (2, 2)
    assert tally[MILLISECONDS] >= 2 * 3_600_000
