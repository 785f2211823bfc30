"""Sinks: 500,000 queued messages to Parquet files and to a table of PostgreSQL, with the default batch size.

The clock stops when every row is written once and every message is deleted. The jobs run meanwhile, as in a host, and
use the same two cores.

    python -m bench.sinks
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from shutil import rmtree

import duckdb
from psycopg.types.json import Jsonb

from bench.messagebox import MeasuredBox, Priority, Region, Total, measured_box
from bench.plain_spark import PlainSpark, plain_spark
from bench.ratios import Result, compute_ratio, measure_alternately, seconds
from postroom.adapters import Null, SinkDefinition, SparkSink, SparkTable
from postroom.message import Message
from postroom.messagebox.connection import Login, connect
from postroom.messagebox.maintenance.jobs import build_jobs, run_all_jobs_once, run_due_jobs
from postroom.spark.sinks.running_sinks import Sinks
from postroom.system_properties import BTS, FILE
from tests.support.spark_session import open_session

ROWS = 500_000
_MASTER = "local[2]"
_LOAD = Path(__file__).with_name("sink_load.sql").read_text()
_COLUMNS = {"region": Region, "total": Total, "priority": Priority}
_SCHEMA = (
    "message_id STRING, interchange_id STRING, message_type STRING, received_at TIMESTAMP, region STRING,"
    " total DECIMAL(38,18), priority BIGINT, body STRING"
)
_NAMES = "message_id, interchange_id, message_type, received_at, region, total, priority, body"


def measure() -> Iterator[Result]:
    """Yield rows/s of a sink over rows/s of plain Spark, and over rows/s of a bare COPY."""
    with measured_box(subscriptions=0) as box, open_session(box.home, master=_MASTER) as session:
        new_run = partial(Sinks, session, box.host, login=_login(box), home=box.home, once=True)
        sinks = MeasuredSinks(box, new_run)
        box.connection.execute("CREATE SCHEMA IF NOT EXISTS public")
        table = SparkTable(box.url, "public.lake", columns=_COLUMNS, body="text")
        sinks.write(table)
        csv, copied = box.home / "rows.csv", sinks.read_copied(box.home / "rows.csv")
        with plain_spark(_MASTER) as spark:
            lake = SparkSink("parquet", "lake", columns=_COLUMNS, body="text")
            pairs = measure_alternately(lambda: sinks.write(lake), lambda: _write_plainly(spark, csv, box.home))
        yield _result("a warm plain Spark job that writes the same rows from a CSV file", "Parquet", 0.25, pairs)
        pairs = measure_alternately(lambda: sinks.write(table), lambda: sinks.copy(copied))
        yield _result("COPY of the same rows by one writer", "a table of PostgreSQL", 0.2, pairs)


class MeasuredSinks:
    """A MessageBox with one sink. The adapter of the sink is replaced before each round."""

    def __init__(self, box: MeasuredBox, new_run: Callable[[], Sinks]) -> None:
        self._box = box
        self._new_run = new_run
        self._port_id = box.add_send_port("Lake", Null())

    def write(self, sink: SinkDefinition) -> float:
        """Return rows/s, from the first batch until the last message is deleted."""
        self._fill_queue(sink)
        sinks = self._new_run()
        elapsed = self._drain(sinks)
        written = sinks.counts["written"]
        found = self._count_rows(sink)
        if (written, found) != (ROWS, (ROWS, ROWS)):
            raise RuntimeError(f"{written} rows were reported, and {found[0]} rows of {found[1]} messages were found")
        return ROWS / elapsed

    def read_copied(self, csv: Path) -> bytes:
        """Write the rows of the table to a CSV file, and return them in COPY's own format."""
        for path, options in ((csv, "(FORMAT csv)"), (csv.with_suffix(".copy"), "")):
            query = f"COPY (SELECT {_NAMES} FROM public.lake) TO STDOUT {options}"
            with path.open("wb") as file, self._box.connection.cursor().copy(query.encode()) as copy:
                file.writelines(bytes(data) for data in copy)
        return csv.with_suffix(".copy").read_bytes()

    def copy(self, data: bytes) -> float:
        """Return rows/s of a COPY of the rows into an empty table, in one transaction."""
        self._box.connection.execute("TRUNCATE public.lake")
        self._box.connection.execute("CHECKPOINT")

        def write() -> None:
            with self._box.connection.cursor().copy(f"COPY public.lake ({_NAMES}) FROM STDIN".encode()) as copy:
                for start in range(0, len(data), 1 << 18):
                    copy.write(data[start : start + (1 << 18)])

        elapsed = seconds(write)
        assert self._box.one("SELECT count(*) FROM public.lake") == ROWS
        return ROWS / elapsed

    def _drain(self, sinks: Sinks) -> float:
        """Return the seconds, without the last look at the tables, which reads all deleted rows, and without the end of
        the jobs."""
        started = time.perf_counter()
        with _run_jobs(self._box):
            while not sinks.check(self._box.connection):
                time.sleep(0.01)
            for problem in sinks.problems.values():
                raise problem
            while True:
                ended = time.perf_counter()
                if not self._box.one("SELECT EXISTS (SELECT 1 FROM spool) OR EXISTS (SELECT 1 FROM parts)"):
                    return ended - started
                time.sleep(0.05)

    def _fill_queue(self, sink: SinkDefinition) -> None:
        """Fill the queue, count the references as the jobs do, and vacuum the tables as autovacuum would."""
        box = self._box
        box.empty()
        rmtree(box.home / "lake", ignore_errors=True)
        if box.one("SELECT to_regclass('public.lake')") is not None:
            box.connection.execute("TRUNCATE public.lake")
        stored = Jsonb({"adapter": sink.model_dump(mode="json")})
        box.connection.execute("UPDATE send_ports SET definition = definition || %s", (stored,))
        context = Message.of(
            b"",
            promoted={
                Region: "@region",
                BTS.ReceivePortName: "In",
                BTS.InboundTransportType: "SPARK",
                BTS.MessageType: "order",
                BTS.InterchangeID: str(uuid.uuid4()),
            },
            written={FILE.ReceivedFileName: "/var/orders/in/orders-2026-01-31.csv"},
        ).context.to_json()
        values = {Total.key: '{"decimal":"@total"}', Priority.key: '"@priority"'}
        added = "".join(f'"{key}":{value},' for key, value in values.items())
        box.connection.execute(
            _LOAD,
            {
                "count": ROWS,
                "context": context.replace('{"promoted":{', f'{{"promoted":{{{added}', 1),
                "host_id": box.host.host_id,
                "service_id": self._port_id,
            },
        )
        run_all_jobs_once(box.connection)
        box.connection.execute("VACUUM ANALYZE")
        box.connection.execute("CHECKPOINT")

    def _count_rows(self, sink: SinkDefinition) -> tuple[object, object]:
        """Return the number of rows and of messages, as another reader finds them."""
        if isinstance(sink, SparkTable):
            return self._box.one("SELECT count(*) FROM public.lake"), self._box.one(
                "SELECT count(DISTINCT message_id) FROM public.lake WHERE length(body) = 200 AND total IS NOT NULL"
            )
        with duckdb.connect() as reader:
            found = reader.execute(
                "SELECT count(*), count(DISTINCT message_id) FILTER (length(body) = 200 AND total IS NOT NULL)"
                f" FROM read_parquet('{self._box.home}/lake/batch=*/*.parquet')"
            ).fetchone()
        assert found is not None
        return found[0], found[1]


@contextmanager
def _run_jobs(box: MeasuredBox) -> Iterator[None]:
    """Run the jobs of the MessageBox when they are due, as a host does."""
    stopping = threading.Event()

    def run() -> None:
        with connect(box.url) as connection:
            jobs = build_jobs()
            while not stopping.wait(0.2):
                run_due_jobs(connection, jobs)

    thread = threading.Thread(target=run, name="jobs")
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()


def _write_plainly(spark: PlainSpark, csv: Path, home: Path) -> float:
    return ROWS / spark.run(csv, _SCHEMA, [{"format": "parquet", "path": str(home / "plain")}])


def _login(box: MeasuredBox) -> Login:
    return Login(url=box.url, user=box.host.role_name)


def _result(baseline: str, target: str, bar: float, pairs: list[tuple[float, float]]) -> Result:
    ratio, spread = compute_ratio(pairs)
    ours, bare = (sorted(side)[len(side) // 2] for side in zip(*pairs, strict=True))
    return Result(
        name=f"sink: {ROWS:,} queued messages with a text of 200 bytes and three columns to {target} on {_MASTER},"
        f" with the cleanup, against {baseline}",
        group="S",
        measured=ratio,
        bar=bar,
        spread=spread,
        detail=f"{ours:,.0f} against {bare:,.0f} rows/s",
    )


if __name__ == "__main__":
    import sys

    for result in measure():
        sys.stdout.write(f"{result}\n")
