"""An installation under `postroom up` whose processes are killed while it processes orders, with checks."""

from __future__ import annotations

import os
import signal
import time
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import psycopg
from psycopg import sql
from psycopg.types.json import Jsonb

from tests.support.contents.counts import Countable, count_query
from tests.support.installation import Installation, Process
from tests.support.orders import FOLDERS, Orders, count_orders
from tests.support.waiting import PATIENCE, wait_until

_ACCOUNT = Path(__file__).with_name("account.sql").read_text(encoding="utf-8")
#: The port that receives every order.
EVERYTHING = "Rest"


@dataclass(frozen=True, kw_only=True)
class KeptBatch:
    """File claims before their publish: the rows, and hard links to the files."""

    rows: list[dict[str, Any]]
    folder: Path
    numbers: list[int]


class ChaosInstallation:
    """Kills and restarts processes, counts orders and verifies the result."""

    def __init__(self, installation: Installation, up: Process) -> None:
        self.installation = installation
        self.up = up
        self.url = wait_until(installation.find_url, what="the database")
        wait_until(lambda: self.find_pid("pipeline Main"), what="the pipeline")
        with self._connect() as connection:
            connection.execute(sql.SQL(_ACCOUNT))

    # -- counting ------------------------------------------------------------------------------------------------

    def read_number(self, query: str, *parameters: object) -> int:
        """Return a number from the MessageBox, or -1 if the MessageBox is unavailable."""
        try:
            with self._connect() as connection:
                row = connection.execute(query, parameters).fetchone()
        except psycopg.OperationalError:
            return -1
        return -1 if row is None else int(row[0] or 0)

    def count(self, what: Countable) -> int:
        """Count in the MessageBox. Return -1 if it is unavailable."""
        return self.read_number(count_query(what))

    def find_pid(self, name: str) -> int:
        """Return the pid of the last process with this name that the supervisor has started, or 0."""
        lines = [line for line in self.up.output().splitlines() if f" {name} starts as process" in line]
        return int(lines[-1].split()[-1]) if lines else 0

    def count_published(self) -> int:
        """Return the number of published orders, from the receipts of their files."""
        return self.read_number(
            "SELECT sum((outcome->>'last')::int) FROM messagebox.receipts WHERE (outcome->>'done')::boolean"
        )

    def count_delivered(self) -> int:
        return sum(len(list((self.installation.home / folder).glob("[!.]*"))) for folder in FOLDERS.values())

    def count_stored(self, orders: list[int]) -> int:
        """Return how many of these orders are still in the spool."""
        return self.read_number(
            "SELECT count(*) FROM messagebox.spool JOIN account.published USING (message_id) WHERE n = ANY (%s)", orders
        )

    # -- killing and freezing ------------------------------------------------------------------------------------

    def kill_pipeline(self) -> int:
        """Kill the driver and wait for the end of its JVM and Python workers. Return the pid."""
        return self.kill("pipeline Main")

    def kill(self, name: str) -> int:
        """Kill a process of the supervisor and wait for the end of its child processes. Return the pid.

        If the process has ended already, because of an earlier fault, its successor is killed."""

        def kill_running() -> tuple[int, list[psutil.Process]] | None:
            try:
                process = self._find_running(name)
                child_processes = process.children(recursive=True)
                process.kill()
            except psutil.NoSuchProcess:
                return None
            return process.pid, child_processes

        killed = wait_until(kill_running, what=f"a process {name} to kill")
        assert killed is not None
        pid, child_processes = killed
        _, alive = psutil.wait_procs(child_processes, PATIENCE)
        assert alive == []
        return pid

    def freeze(self, name: str, seconds: float, *, child: int | None = None, then: signal.Signals) -> None:
        """Stop a process, or one of its child processes, for some time; then continue or kill it.

        The supervisor may have killed it in the meantime. ``child`` is any number, which selects one of them."""

        def freeze_running() -> psutil.Process | None:
            try:
                process = self._find_running(name)
                if child is not None:
                    child_processes = process.children(recursive=True)
                    if not child_processes:
                        return None
                    process = child_processes[child % len(child_processes)]
                process.suspend()
            except psutil.NoSuchProcess:
                return None
            return process

        frozen = wait_until(freeze_running, what=f"a process {name} to freeze")
        assert frozen is not None
        time.sleep(seconds)
        with suppress(psutil.NoSuchProcess):
            # psutil checks that the process id was not used again.
            frozen.send_signal(signal.SIGCONT)
            frozen.send_signal(then)

    def _find_running(self, name: str) -> psutil.Process:
        """Return the last process of that name. Raise NoSuchProcess if it has ended and no other was announced."""
        pid = self.find_pid(name)
        process = psutil.Process(pid)
        if process.status() == psutil.STATUS_ZOMBIE:
            raise psutil.NoSuchProcess(pid)
        return process

    @contextmanager
    def block_publishing(self) -> Iterator[None]:
        """Block all publishers at their last step, until the end of the block or of PostgreSQL."""
        with self._connect() as connection:
            connection.execute("SELECT pg_advisory_lock(7001, 0)")
            yield

    def wait_for_publisher(self) -> None:
        """Wait until a publisher is blocked at its last step."""
        waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 7001 AND NOT granted"
        wait_until(lambda: self.read_number(waiting) > 0, what="a blocked publisher")

    @contextmanager
    def stop_host(self) -> Iterator[None]:
        """Stop the host with SIGSTOP, and kill it at the end."""
        pid = self.find_pid("host Main")
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            # The supervisor kills it too if it is frozen for long.
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def end_postgres(self, how: signal.Signals) -> None:
        """End PostgreSQL. SIGINT is a fast shutdown, SIGQUIT is like a crash. The supervisor restarts it.

        If PostgreSQL is not ready, because of an earlier fault, its successor is ended."""

        def end_ready() -> psutil.Process | None:
            try:
                if not self.installation.find_url():
                    return None
                [pid_file] = (self.installation.home / ".postroom" / "postgres").glob("*/postmaster.pid")
                postmaster = psutil.Process(int(pid_file.read_text().splitlines()[0]))
                postmaster.send_signal(how)
            except (FileNotFoundError, ValueError, IndexError, psutil.NoSuchProcess):
                return None  # it is starting or ending
            return postmaster

        postmaster = wait_until(end_ready, what="a PostgreSQL to end")
        assert postmaster is not None
        wait_until(lambda: _has_ended(postmaster), what="the end of PostgreSQL")

    # -- replaying a batch --------------------------------------------------------------------------------------

    def keep_batch(self, files: list[tuple[str, bytes]], orders: list[int]) -> KeptBatch:
        """Drop files, and keep their claims and contents. Publishing is blocked until then."""
        folder = self.installation.home / "kept"
        folder.mkdir(exist_ok=True)
        with self.block_publishing(), self._connect() as connection:
            for name, content in files:
                self.installation.drop_file(name, content)
            names = [name for name, _ in files]

            def claimed() -> list[dict[str, Any]]:
                rows = connection.execute(
                    "SELECT to_jsonb(c) FROM messagebox.file_claims c WHERE state = 2 AND name = ANY (%s)", (names,)
                )
                return [row for (row,) in rows]

            rows = wait_until(lambda: found if len(found := claimed()) == len(files) else [], what="the file claims")
            for row in rows:
                (folder / row["interchange_id"]).hardlink_to(row["path"])
        return KeptBatch(rows=rows, folder=folder, numbers=orders)

    def replay(self, batch: KeptBatch) -> None:
        """Restore file claims and files, as after a crash between the commit and the removal of the files.

        Wait until the stream has finished them."""
        wait_until(lambda: self.read_number("SELECT 1") == 1, what="the database")
        assert self.count_stored(batch.numbers) == 0, "the messages are not deleted yet"
        with self._connect() as connection, connection.transaction():
            connection.execute(
                "INSERT INTO messagebox.file_claims"
                " (interchange_id, number, location_id, name, path, size, modified_ns, state)"
                " SELECT interchange_id, nextval('messagebox.intake_number'), location_id, name, path, size,"
                "        modified_ns, 2"
                "   FROM jsonb_populate_recordset(NULL::messagebox.file_claims, %s)",
                (Jsonb(batch.rows),),
            )
            for row in batch.rows:
                Path(row["path"]).hardlink_to(batch.folder / row["interchange_id"])
        ids = [uuid.UUID(row["interchange_id"]) for row in batch.rows]
        count = "SELECT count(*) FROM messagebox.file_claims WHERE interchange_id = ANY (%s)"
        wait_until(lambda: self.read_number(count, ids) == 0, what="the end of the replayed batch")
        assert not [row["path"] for row in batch.rows if Path(row["path"]).exists()]

    # -- verifying -----------------------------------------------------------------------------------------------

    def wait_for_end(self, orders: Orders, *, timeout: float = PATIENCE) -> None:
        """Wait until all orders are delivered and deleted."""
        for port, folder in FOLDERS.items():
            self.installation.wait_for_files(folder, len(orders.expected[port]), timeout=timeout)
        for table in ("work_queue", "spool", "parts"):
            count = f"SELECT count(*) FROM messagebox.{table}"
            wait_until(lambda count=count: self.read_number(count) == 0, what=f"an empty {table}")  # type: ignore[misc]
        wait_until(lambda: not list((self.installation.home / "in").glob("*.jsonl")), what="an empty source folder")

    def verify(self, orders: Orders) -> None:
        """Check that every order is published once, routed once to each matching port, and delivered."""
        problems = self.find_problems(orders)
        assert not problems, "\n".join(problems)
        self.installation.run("check")

    def find_problems(self, orders: Orders) -> list[str]:
        """Describe each difference between the orders and what was published, routed and delivered."""
        count = len(orders.lines)
        everything = Counter(range(count))
        problems = []
        with self._connect() as connection:
            rows = connection.execute("SELECT n, count(*) FROM account.published GROUP BY n")
            problems += _compare("published", Counter(dict(rows.fetchall())), everything)
            routed: dict[str, Counter[int]] = {name: Counter() for name in (*orders.expected, EVERYTHING)}
            for name, n, times in connection.execute(
                "SELECT s.name, p.n, count(*) FROM account.routed r JOIN account.published p USING (message_id)"
                "  JOIN management.send_ports s ON s.id = r.service_id GROUP BY 1, 2"
            ):
                routed[name][n] += times
        for port, expected in {**orders.expected, EVERYTHING: everything}.items():
            problems += _compare(f"routed to {port}", routed[port], expected)
        for port, folder in FOLDERS.items():
            delivered = count_orders(self.installation.read_files(folder))
            problems += _compare(f"delivered by {port}", delivered, orders.expected[port])
        if suspended := self.read_number("SELECT count(*) FROM messagebox.suspended_queue"):
            problems.append(f"{suspended:,} suspended messages")
        if (published := self.count_published()) != count:
            problems.append(f"receipts of {published:,} orders instead of {count:,}")
        return problems

    def _connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True, options="-c search_path=messagebox,management")


def _compare(what: str, found: Counter[int], expected: Counter[int]) -> list[str]:
    """Describe which orders are missing or occur too often."""
    missing, extra = expected - found, found - expected
    return [
        f"{len(some):,} orders {which} {what}, such as {sorted(some)[:5]}"
        for which, some in (("were not", missing), ("were more than once", extra))
        if some
    ]


def _has_ended(process: psutil.Process) -> bool:
    """Return True if a process has ended. A host that has started PostgreSQL leaves it as a zombie."""
    try:
        return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
