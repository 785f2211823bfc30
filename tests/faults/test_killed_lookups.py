"""Hosts are killed while they apply messages to a lookup. No message is lost, and the newest of each key counts."""

from __future__ import annotations

import random
import time
from contextlib import ExitStack
from pathlib import Path

from postroom.messagebox.connection import connect
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.messagebox.maintenance.check import check
from tests.support.deployment import deploy
from tests.support.lookups import count_waiting, customers_app, publish_customer, read_customer
from tests.support.orchestration_host import start_orchestration_host
from tests.support.waiting import wait_until

KEYS, ROUNDS, KILLS = 5, 60, 3


def test_every_message_is_applied_and_the_newest_of_each_key_counts(database: str, tmp_path: Path) -> None:
    """SUB-06: what a killed host had claimed is applied by another one, also after newer messages."""
    app = customers_app(host="Default")
    app.host("Default")
    chance = random.Random(7)
    newest: dict[str, bytes] = {}
    with connect(database) as connection, ExitStack() as stack:
        deploy(connection, app)
        hosts = [start_orchestration_host(stack, database, tmp_path) for _ in range(2)]
        for round in range(ROUNDS):
            for key in range(KEYS):
                # An empty body deletes the entry.
                newest[f"C-{key}"] = b"" if chance.random() < 0.2 else b"%d" % round
                publish_customer(connection, f"C-{key}", newest[f"C-{key}"])
            if round % (ROUNDS // KILLS) == 5:
                time.sleep(chance.uniform(0, 0.3))  # the time of the kill is random
                killed = round % 2
                hosts[killed].kill()
                hosts[killed] = start_orchestration_host(stack, database, tmp_path)
        wait_until(lambda: count_waiting(connection) == 0, what="the messages of the lookup")
        assert {key: read_customer(connection, key) or b"" for key in newest} == newest
        assert list_instances(connection, InstanceQuery()) == []
        assert check(connection) == []
