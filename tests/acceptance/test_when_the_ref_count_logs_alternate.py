"""ACC-80: under continuous load the active log alternates, no count is lost, and the spool returns to zero."""

from __future__ import annotations

import postroom
from postroom import Property
from postroom.messagebox.connection import connect
from tests.support.contents import Contents
from tests.support.contents.counts import Countable
from tests.support.installation import Installation
from tests.support.waiting import wait_until

Region = Property("Orders.Region", str)


def test_the_spool_returns_to_zero_after_the_load(installation: Installation) -> None:
    """REF-04."""
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
        connect(installation.database) as connection,
        postroom.connect(installation.database) as client,
    ):
        contents = Contents(connection)
        published = 0

        def publish_and_check() -> bool:
            nonlocal published
            for _ in range(20):
                client.publish(b"order", promoted={Region: "EU"})
                published += 1
            active_logs.add(contents.read_active_log())
            assert contents.count("negative reference totals") == 0
            return active_logs == {1, 2} and published >= 500

        wait_until(publish_and_check, what="both logs to have been active")
        everything: tuple[Countable, ...] = ("messages", "parts", "reference totals", "unreferenced messages")
        wait_until(lambda: contents.count("queued") == 0, what="an empty queue")
        wait_until(lambda: not any(contents.count(what) for what in everything), what="an empty MessageBox")
