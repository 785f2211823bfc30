"""A Postroom under `postroom up` whose processes are killed while orders pass through it, and checks of the result."""

from __future__ import annotations

import os
import signal
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.support.installation import Installation, Process
from tests.support.orders import FOLDERS, Orders, numbers
from tests.support.waiting import PATIENCE, wait_until

_ACCOUNT = Path(__file__).with_name("account.sql").read_text(encoding="utf-8")
#: The port that every order goes to.
EVERYTHING = "Rest"


@dataclass(frozen=True, kw_only=True)
class KeptBatch:
    """Claimed files, as they were before they were published: their rows, and links to them."""

    rows: list[dict[str, Any]]
    folder: Path
    numbers: list[int]


class ChaosInstallation:
    """Kills, restarts and counts."""

    def __init__(self, installation: Installation, up: Process) -> None:
        self.installation = installation
        self.up = up
        self.url = wait_until(installation.find_url, what="the database")
        wait_until(lambda: self.pid_of("pipeline Main"), what="the pipeline")
        with self._connect() as connection:
            connection.execute(sql.SQL(_ACCOUNT))

    # -- looking -------------------------------------------------------------------------------------------------

    def ask(self, query: str, *parameters: object) -> int:
        """A number from the MessageBox; -1 while it does not answer."""
        try:
            with self._connect() as connection:
                row = connection.execute(query, parameters).fetchone()
        except psycopg.OperationalError:
            return -1
        return -1 if row is None else int(row[0] or 0)

    def pid_of(self, name: str) -> int:
        """The newest process of that name that the supervisor has told of."""
        lines = [line for line in self.up.output().splitlines() if line.startswith(f"{name} starts as process")]
        return int(lines[-1].split()[-1]) if lines else 0

    def published(self) -> int:
        """How many orders are in the MessageBox for good, by the receipts of their files."""
        return self.ask(
            "SELECT sum((outcome->>'last')::int) FROM messagebox.receipts WHERE (outcome->>'done')::boolean"
        )

    def delivered(self) -> int:
        return sum(len(list((self.installation.home / folder).glob("[!.]*"))) for folder in FOLDERS.values())

    def stored(self, orders: list[int]) -> int:
        """How many of these orders the cleanup has left so far."""
        return self.ask(
            "SELECT count(*) FROM messagebox.spool JOIN account.published USING (message_id) WHERE n = ANY (%s)", orders
        )

    # -- killing -------------------------------------------------------------------------------------------------

    def kill_pipeline(self) -> int:
        """The driver dies; its JVM and Python workers must not outlive it. Returns which process it was."""
        driver = psutil.Process(self.pid_of("pipeline Main"))
        family = driver.children(recursive=True)
        driver.kill()
        _, alive = psutil.wait_procs(family, PATIENCE)
        assert alive == []
        return int(driver.pid)

    @contextmanager
    def nothing_published(self) -> Iterator[None]:
        """Whoever publishes waits at its last step, for as long as this lasts or PostgreSQL lives."""
        with self._connect() as connection:
            connection.execute("SELECT pg_advisory_lock(7001, 0)")
            yield

    def wait_for_publisher(self) -> None:
        """Until somebody stands at that last step."""
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7001 AND NOT granted"
        wait_until(lambda: self.ask(waiting) > 0, what="a publisher that waits")

    @contextmanager
    def host_stopped(self) -> Iterator[None]:
        """The host does nothing more; then it dies."""
        pid = self.pid_of("host Main")
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGKILL)

    def end_postgres(self, how: signal.Signals) -> None:
        """SIGINT is a fast shutdown, SIGQUIT an immediate one, as in a crash; the supervisor starts it again."""
        [pid_file] = (self.installation.home / ".postroom" / "postgres").glob("*/postmaster.pid")
        os.kill(int(pid_file.read_text().splitlines()[0]), how)

    # -- the same batch again ------------------------------------------------------------------------------------

    def keep_batch(self, files: list[tuple[str, bytes]], orders: list[int]) -> KeptBatch:
        """Drops files, and keeps them as they are claimed. Nothing is published meanwhile."""
        folder = self.installation.home / "kept"
        folder.mkdir(exist_ok=True)
        with self.nothing_published(), self._connect() as connection:
            for name, content in files:
                self.installation.drop_file(name, content)
            names = [name for name, _ in files]

            def claimed() -> list[dict[str, Any]]:
                rows = connection.execute(
                    "SELECT to_jsonb(c) FROM messagebox.file_claims c WHERE state = 2 AND name = ANY (%s)", (names,)
                )
                return [row for (row,) in rows]

            rows = wait_until(lambda: found if len(found := claimed()) == len(files) else [], what="claims")
            for row in rows:
                (folder / row["interchange_id"]).hardlink_to(row["path"])
        return KeptBatch(rows=rows, folder=folder, numbers=orders)

    def bring_again(self, batch: KeptBatch) -> None:
        """As a driver would find them that died after the commit and before it had taken the files away; waits until
        the stream is done with them."""
        assert self.stored(batch.numbers) == 0, "not cleaned up yet"
        with self._connect() as connection, connection.transaction():
            connection.execute(
                "INSERT INTO messagebox.file_claims"
                " (interchange_id, number, location_id, name, path, size, modified_ns, state)"
                " SELECT interchange_id, nextval('messagebox.file_claim_number'), location_id, name, path, size,"
                "        modified_ns, 2"
                "   FROM jsonb_populate_recordset(NULL::messagebox.file_claims, %s)",
                (Jsonb(batch.rows),),
            )
            for row in batch.rows:
                Path(row["path"]).hardlink_to(batch.folder / row["interchange_id"])
        ids = [uuid.UUID(row["interchange_id"]) for row in batch.rows]
        count = "SELECT count(*) FROM messagebox.file_claims WHERE interchange_id = ANY (%s)"
        wait_until(lambda: self.ask(count, ids) == 0, what="the batch that came again to be finished with")
        assert not [row["path"] for row in batch.rows if Path(row["path"]).exists()]

    # -- the account ---------------------------------------------------------------------------------------------

    def wait_for_end(self, orders: Orders, *, timeout: float = PATIENCE) -> None:
        """Until everything is delivered and cleaned up."""
        for port, folder in FOLDERS.items():
            self.installation.wait_for_files(folder, len(orders.expected[port]), timeout=timeout)
        for table in ("work_queue", "spool", "parts"):
            count = f"SELECT count(*) FROM messagebox.{table}"
            wait_until(lambda count=count: self.ask(count) == 0, what=f"an empty {table}")  # type: ignore[misc]
        wait_until(lambda: not list((self.installation.home / "in").glob("*.jsonl")), what="an empty source folder")

    def verify(self, orders: Orders) -> None:
        """Every order published exactly once, every route exactly once, every file where it belongs."""
        count = len(orders.lines)
        everything = Counter(range(count))
        with self._connect() as connection:
            found = connection.execute("SELECT n, count(*) FROM account.published GROUP BY n")
            assert Counter(dict(found.fetchall())) == everything
            routed: dict[str, Counter[int]] = {name: Counter() for name in (*orders.expected, EVERYTHING)}
            for name, n, times in connection.execute(
                "SELECT s.name, p.n, count(*) FROM account.routed r JOIN account.published p USING (message_id)"
                "  JOIN management.send_ports s ON s.id = r.service_id GROUP BY 1, 2"
            ):
                routed[name][n] += times
        assert routed == {**orders.expected, EVERYTHING: everything}
        for port, folder in FOLDERS.items():
            assert numbers(self.installation.read_files(folder)) == orders.expected[port]
        assert self.ask("SELECT count(*) FROM messagebox.suspended_queue") == 0
        assert self.published() == count
        self.installation.run("check")

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True)
