"""The load is measured from the counters of PostgreSQL, at most once a second, by one session at a time."""

from __future__ import annotations

from datetime import datetime

from postroom import Throttling
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.throttling.load import read_throttle
from tests.support.box import Box
from tests.support.host_settings import set_thresholds
from tests.support.waiting import wait_until


def measure(connection: Connection, max_age: str = "0") -> tuple[int, int, datetime]:
    row = connection.execute("SELECT queued, spooled, measured_at FROM current_load(%s::interval)", (max_age,))
    found = row.fetchone()
    assert found is not None
    return found[0], found[1], found[2]


def test_a_host_is_throttled_until_the_load_is_below_the_threshold(box: Box) -> None:
    box.add_port("Stopped", "Region == 'EU'", state="stopped")
    box.add_port("Started", "exists(Region)")
    location = box.add_location()
    set_thresholds(box.connection, box.host().host_id, Throttling(messages=50, longest_delay=10))
    with connect(box.url, user=box.host().role_name) as connection:
        assert measure(connection)[:2] == (0, 0)
        # Every message has two queue rows. Suspended messages count.
        box.receive(location, b"\n".join(b'{"region": "EU"}' for _ in range(40)))
        wait_until(lambda: measure(connection)[:2] == (80, 40), what="80 rows in queues")
        throttle = read_throttle(connection, box.host().host_id, location.location_id)
        assert throttle is not None
        assert throttle.reason.startswith("80 messages are in the queues; the threshold is 50")
        box.connection.execute("DELETE FROM work_queue")
        box.connection.execute("SELECT pg_stat_force_next_flush()")
        wait_until(lambda: measure(connection)[0] == 40, what="40 rows in queues")
        assert read_throttle(connection, box.host().host_id, location.location_id) is None


def test_suspended_messages_of_a_location_throttle_only_this_location(box: Box) -> None:
    flooded, other = box.add_location(name="Flooded"), box.add_location(name="Other", port="OtherIn")
    set_thresholds(box.connection, box.host().host_id, Throttling(messages=50, spool_multiplier=1, longest_delay=10))
    with connect(box.url, user=box.host().role_name) as connection:
        box.receive(flooded, b"\n".join(b'{"region": "EU"}' for _ in range(60)))
        wait_until(lambda: measure(connection)[:2] == (61, 61), what="60 suspended documents and their report")
        throttle = read_throttle(connection, box.host().host_id, flooded.location_id)
        assert throttle is not None
        assert throttle.reason.startswith("60 messages are in the")
        assert read_throttle(connection, box.host().host_id, other.location_id) is None
        # What waits for a subscriber slows down both.
        box.add_port("Started", "exists(Region)")
        box.receive(other, b"\n".join(b'{"region": "EU"}' for _ in range(51)))
        wait_until(lambda: measure(connection)[0] == 112, what="51 more rows in queues")
        throttle = read_throttle(connection, box.host().host_id, other.location_id)
        assert throttle is not None
        assert throttle.reason.startswith("51 messages are in the")


def test_the_load_is_measured_at_most_once_a_second_by_one_session(box: Box) -> None:
    first = measure(box.connection)
    assert measure(box.connection, "1 hour") == first
    assert measure(box.connection)[2] > first[2]
    with connect(box.url) as other, other.transaction():
        other.execute("SELECT pg_advisory_xact_lock(7001, 2)")
        last = box.one("SELECT measured_at FROM load")
        assert measure(box.connection)[2] == last


def test_the_load_is_measured_again_after_the_clock_was_set_back(box: Box) -> None:
    box.connection.execute("UPDATE load SET measured_at = now() + interval '1 hour', queued = 5")
    queued, _, measured_at = measure(box.connection, "1 second")
    assert queued == 0
    assert measured_at <= box.one("SELECT clock_timestamp()")


def test_counters_that_a_crash_reset_are_corrected(box: Box) -> None:
    location = box.add_location()
    box.add_port("Started", "exists(Region)")
    box.receive(location, b"\n".join(b'{"region": "EU"}' for _ in range(40)))
    # The first measurement analyses the tables. Rows that are not flushed by then would count twice.
    box.connection.execute("SELECT pg_stat_force_next_flush()")
    wait_until(lambda: measure(box.connection)[:2] == (40, 40), what="40 rows in queues")
    tables = "SELECT inhrelid FROM pg_inherits WHERE inhparent = 'work_queue'::regclass UNION SELECT 'spool'::regclass"
    for (table,) in box.connection.execute(tables.encode()).fetchall():
        box.connection.execute("SELECT pg_stat_reset_single_table_counters(%s)", (table,))
    assert measure(box.connection)[:2] == (0, 0)
    # A crash also changes the start of the counters.
    box.connection.execute("UPDATE load SET statistics_since = now() - interval '1 day'")
    assert measure(box.connection)[:2] == (40, 40)


def test_rows_that_come_in_and_leave_are_counted_in_windows_of_15_seconds(box: Box) -> None:
    """THR-03."""
    box.add_port("Started", "exists(Region)")
    location = box.add_location()

    def count_flow(at: str) -> tuple[int, int]:
        box.connection.execute("SELECT pg_stat_force_next_flush()")
        query = f"SELECT incoming, outgoing FROM current_load('0', timestamptz '2030-01-01' + interval '{at}')"
        row = box.connection.execute(query.encode()).fetchone()
        assert row is not None
        return row[0], row[1]

    assert count_flow("0 s") == (0, 0)
    box.receive(location, b"\n".join(b'{"region": "EU"}' for _ in range(40)))
    box.connection.execute("DELETE FROM work_queue WHERE seq IN (SELECT seq FROM work_queue LIMIT 10)")
    assert count_flow("14 s") == (0, 0)
    assert count_flow("16 s") == (40, 10)
    assert count_flow("20 s") == (40, 10)
    assert count_flow("32 s") == (0, 0)
    # Nobody has ended the window in time.
    box.receive(location, b'{"region": "EU"}')
    assert count_flow("90 s") == (0, 0)
