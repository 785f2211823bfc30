"""Backups of a MessageBox under load, restored: every message is accounted for.

Programs publish, files are dropped, claimed, published and removed, messages are delivered, and the jobs clean up while
a backup is created. A restored MessageBox has every order that was accepted before the backup, unless it had been
delivered before the backup, and delivers it once to every port.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, Login, connect
from postroom.messagebox.intake.file_claims import FileClaimState
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.maintenance.jobs import build_jobs, run_all_jobs_once, run_due_jobs
from postroom.messagebox.queues import HostQueues
from postroom.operations.backup import create, create_backup, read_manifest, restore_backup
from postroom.operations.backup.manifest import verify_backup
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from postroom.receiving.files.file_claimer import FileClaimer
from postroom.spark.receive.task import SparkReceiveTask
from postroom.spark.worker import close_worker
from tests.support.box import Box, Region, open_box
from tests.support.contents import Contents
from tests.support.databases import Databases
from tests.support.file_location import add_file_location, read_numbered_claims
from tests.support.waiting import wait_until

BACKUPS = 3
PORTS = ("Audit", "Everything")
#: An order's number, and the port that it was delivered to.
Delivery = tuple[int, str]


class Load:
    """Everything that runs during the backups. Orders are numbered: even ones are published, odd ones are dropped."""

    def __init__(self, box: Box, location: ReceiveLocation, home: Path) -> None:
        self.box = box
        self.location = location
        self.home = home
        self.stop = threading.Event()
        self.published: list[int] = []
        self.dropped: list[int] = []
        self.delivered: Counter[Delivery] = Counter()
        self.rounds = 0
        """How often the receive location was scanned and its claimed files were published."""

    @property
    def workers(self) -> list[Callable[[], None]]:
        return [self.publish, self.drop, self.receive, self.deliver, self.run_jobs]

    def publish(self) -> None:
        with connect(self.box.url) as connection:
            agent = self.box.agent(connection=connection)
            for number in range(0, 1 << 40, 2):
                if self.stop.is_set():
                    return
                agent.publish([Message.of(format_order(number), promoted={Region: "EU"})])
                self.published.append(number)

    def drop(self) -> None:
        for number in range(1, 1 << 40, 2):
            # The sender waits while many files are in the folder.
            while not self.stop.is_set() and sum(1 for _ in (self.home / "in").iterdir()) > 20:
                self.stop.wait(0.01)
            if self.stop.is_set():
                return
            (self.home / "in" / f".{number}").write_bytes(format_order(number))
            (self.home / "in" / f".{number}").rename(self.home / "in" / f"{number}.json")
            self.dropped.append(number)

    def receive(self) -> None:
        with connect(self.box.url, user=self.box.host().role_name) as connection:
            claimer = FileClaimer(connection, self.location, self.home)
            while not self.stop.is_set():
                claimer.scan()
                receive_claimed(self.box, self.location, self.home)
                self.rounds += 1

    def deliver(self) -> None:
        with connect(self.box.url) as connection:
            while not self.stop.is_set():
                self.delivered.update(deliver(connection, 5))

    def run_jobs(self) -> None:
        known = [job for job in build_jobs() if job.name != "dead_processes_cleanup"]
        with connect(self.box.url) as connection:
            while not self.stop.is_set():
                run_due_jobs(connection, known)

    def find_accepted(self) -> set[int]:
        """Return the orders that are published, or whose files are claimed."""
        states = (FileClaimState.CLAIMED, FileClaimState.PUBLISHED)
        names = [claim.name for claim in self.box.file_claims() if claim.state in states]
        claimed = {int(name.partition(".")[0]) for name in names}
        return {*self.published, *claimed, *(number for number, _ in self.delivered.copy())}


def format_order(number: int) -> bytes:
    return json.dumps({"region": "EU", "number": number}).encode()


def receive_claimed(box: Box, location: ReceiveLocation, home: Path) -> None:
    login = Login(url=box.url, user=box.host().role_name)
    try:
        claims = read_numbered_claims(box.connection, location)
        list(SparkReceiveTask(location=location, home=home, login=login).receive(claims))
    finally:
        close_worker(login)


def deliver(connection: Connection, limit: int) -> list[Delivery]:
    queues, claim_id = HostQueues("Default"), uuid.uuid4()
    claimed = queues.dequeue(
        connection, claim_id=claim_id, host_instance=0, service_class=ServiceClass.MESSAGING_IN_PROCESS, limit=limit
    )
    if not claimed:
        return []
    rows = [row for row in Contents(connection).queued_rows() if row.claim_id == claim_id]
    assert queues.complete(connection, claim_id, [one.seq for one in claimed]) == len(claimed) == len(rows)
    return [(json.loads(row.body or b"")["number"], row.port or "") for row in rows]


@pytest.mark.sample("hosts under load")
def test_every_message_of_a_backup_under_load_is_accounted_for(
    box: Box, databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    (home / "in").mkdir(parents=True)
    for name in PORTS:
        box.add_port(name, "exists(Region)")
    load = Load(box, add_file_location(box, Path("in"), pattern="*.json"), home)
    accepted: list[set[int]] = []
    delivered_before: list[set[Delivery]] = []
    delivered_since: list[set[Delivery]] = []

    collect: Callable[..., int] = create._collect_claimed

    def collect_late(*arguments: Any) -> int:
        """Have the load work on between the snapshot and the copy of the claimed files."""
        rounds, published = load.rounds, len(load.published)
        wait_until(lambda: load.rounds > rounds + 3 and len(load.published) > published + 20, what="more orders")
        return collect(*arguments)

    monkeypatch.setattr(create, "_collect_claimed", collect_late)

    def has_progress(before: tuple[int, int, int]) -> bool:
        now = (len(load.published), len(load.dropped), load.delivered.total())
        return all(new > old + 20 for new, old in zip(now, before, strict=True))

    with ThreadPoolExecutor() as threads:
        running = [threads.submit(worker) for worker in load.workers]
        try:
            for number in range(BACKUPS):
                before = (len(load.published), len(load.dropped), load.delivered.total())
                wait_until(lambda before=before: has_progress(before), what="orders under way")  # type: ignore[misc]
                delivered_before.append(set(load.delivered.copy()))
                accepted.append(load.find_accepted())
                create_backup(box.url, home, tmp_path / f"backup-{number}")
                delivered_since.append(set(load.delivered.copy()))
        finally:
            load.stop.set()
        for worker in running:
            worker.result()

    for number in range(BACKUPS):
        with databases.clone("template0") as empty:
            restored = restore_and_deliver(empty, tmp_path / f"backup-{number}", tmp_path / f"home-{number}")
        assert max(restored.values()) == 1
        # What was delivered when the backup started is not delivered again, and nothing that was accepted is missing.
        assert not delivered_before[number] & restored.keys()
        expected = {(order, port) for order in accepted[number] for port in PORTS}
        assert expected <= delivered_since[number] | restored.keys()
    assert max(load.delivered.values()) == 1


def restore_and_deliver(url: str, backup: Path, home: Path) -> Counter[Delivery]:
    """Restore a backup to another home folder and deliver everything that it has. Return the deliveries."""
    manifest = read_manifest(backup)
    verify_backup(backup, manifest)
    restore_backup(url, home, backup, manifest)
    delivered: Counter[Delivery] = Counter()
    with open_box(url) as box:
        assert {violation.invariant for violation in check(box.connection)} <= {"claims_of_dead_instances"}
        # Messages that were claimed during the backup belong to a host instance that does not exist here.
        box.connection.execute("SELECT dead_processes_cleanup()")
        [location] = read_receive_locations(box.connection)
        with connect(url, user=box.host().role_name) as connection:
            claimer = FileClaimer(connection, location, home)
            claimer.scan()
            receive_claimed(box, location, home)
            # A claim that was published at the time of the backup has its receipt: only its file is removed.
            claimer.scan()
        assert box.count("file claims") == 0
        assert not list(home.glob("in/.postroom/*/*"))
        while found := deliver(box.connection, 100):
            delivered.update(found)
        run_all_jobs_once(box.connection)
        assert (box.count("messages"), box.count("parts")) == (0, 0)
        assert check(box.connection) == []
    return delivered
