"""ACC-80: under continuous load the active log alternates, no count is lost, and the spool returns to zero."""

from __future__ import annotations

import psycopg

import postroom
from postroom import Property
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


def test_the_spool_returns_to_zero_after_the_load(installation: Installation) -> None:
    installation.apply(
        """
        app.send_port("A", adapters.Null(), filter=Region == "EU")
        app.send_port("B", adapters.Null(), filter=Region == "EU")
        """
    )
    for _ in range(2):
        installation.start_host()
    assert installation.database is not None
    active_logs: set[int] = set()
    with (
        psycopg.connect(installation.database, autocommit=True) as connection,
        postroom.connect(installation.database) as client,
    ):

        def read(query: str) -> int:
            row = connection.execute(query).fetchone()
            assert row is not None
            return int(row[0] or 0)

        published = 0

        def publish_and_check() -> bool:
            nonlocal published
            for _ in range(20):
                client.publish(b"order", promoted={Region: "EU"})
                published += 1
            active_logs.add(read("SELECT active FROM messagebox.active_ref_count_log WHERE kind = 'message'"))
            assert read("SELECT count(*) FROM messagebox.message_ref_count_log_totals WHERE total < 0") == 0
            return active_logs == {1, 2} and published >= 500

        wait_until(publish_and_check, what="both logs to have been active")
        wait_until(lambda: read("SELECT count(*) FROM messagebox.work_queue") == 0, what="an empty queue")
        for table in ("spool", "parts", "message_ref_count_log_totals", "message_zero_sum"):
            wait_until(lambda t=table: read(f"SELECT count(*) FROM messagebox.{t}") == 0, what=f"an empty {table}")  # type: ignore[misc]
