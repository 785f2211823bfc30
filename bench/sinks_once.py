"""Bulk to sinks: a CSV file of 500,000 rows through three filters into a Parquet, a JSON and a table sink.

`postroom pipeline run --once` from its start to its end, against a process of plain Spark that starts, reads the file
and does the three writes. Each row matches one filter.

    python -m bench.sinks_once
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from shutil import copyfile, rmtree

import duckdb

from bench.messagebox import delete_messages
from bench.plain_spark import plain_spark
from bench.ratios import Result, compute_ratio, measure_alternately, seconds
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.embedded import EmbeddedServer

ROWS = 500_000
_ROW_BYTES = 200
MASTER = "local[2]"
_REGIONS = ("EU", "US", "UK")
_SCHEMA = "region STRING, total DECIMAL(12,2), priority INT, number INT, note STRING"
_APP = """\
from decimal import Decimal
from postroom import Application, Property, adapters, pipelines

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)
COLUMNS = {{"region": Region, "total": Total, "priority": Priority}}
app = Application("orders")
reader = adapters.SparkReader("csv", "in", schema="{schema}", settle=0.5)
promote = {{Region: "region", Total: "total", Priority: "priority"}}
app.receive_port("RowsIn").location("rows", reader, pipeline=pipelines.Rows(promote=promote))
app.send_port("Lake", adapters.SparkSink("parquet", "lake", columns=COLUMNS, body="text"), filter=Region == "EU")
app.send_port("Lines", adapters.SparkSink("json", "lines", columns=COLUMNS), filter=Region == "US")
table = adapters.SparkTable("{url}", "public.orders", columns=COLUMNS, body="text")
app.send_port("Table", table, filter=Region == "UK")
"""


def measure() -> Result:
    """Return rows/s of the pipeline over rows/s of plain Spark."""
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)  # if started by root, the server runs as another account
        (home / "in").mkdir()
        csv = home / "rows.csv"
        write_csv(csv)
        with EmbeddedServer(home / ".postroom" / "postgres") as server:
            apply(home, server.url())
            with connect(server.url()) as connection:
                connection.execute("CREATE SCHEMA IF NOT EXISTS public")
                connection.execute(f"CREATE TABLE public.plain ({_SCHEMA.replace('STRING', 'text')})".encode())
                pairs = measure_alternately(
                    lambda: _run_pipeline(home, csv, connection),
                    lambda: _run_plainly(home, csv, server.url(), connection),
                    rounds=3,
                )
    ratio, spread = compute_ratio(pairs)
    ours, plain = (sorted(side)[len(side) // 2] for side in zip(*pairs, strict=True))
    return Result(
        name=f"bulk to sinks: CSV of {ROWS:,} rows of {_ROW_BYTES} bytes on {MASTER} through three filters into a"
        " Parquet, a JSON and a table sink with --once, against a process of plain Spark that does the three writes;"
        " three rounds, both with the start of Spark",
        group="S",
        measured=ratio,
        bar=0.15,
        spread=spread,
        detail=f"{ROWS / ours:,.0f} s against {ROWS / plain:,.0f} s",
    )


def apply(home: Path, url: str) -> None:
    """Deploy the application. Its table sink writes to the database of the MessageBox."""
    (home / "app.py").write_text(_APP.format(schema=_SCHEMA, url=url))
    _run(home, "apply", str(home / "app.py"))


def check_sinks(home: Path, connection: Connection) -> None:
    """Raise RuntimeError if a row is missing in its sink or is there twice. DuckDB reads the files."""
    with duckdb.connect() as reader:
        counts = [
            reader.execute(f"SELECT count(*), count(DISTINCT message_id) FROM {source}").fetchone()
            for source in (
                f"read_parquet('{home}/lake/batch=*/*.parquet')",
                f"read_json('{home}/lines/batch=*/*.json')",
            )
        ]
    counts.append(connection.execute("SELECT count(*), count(DISTINCT message_id) FROM public.orders").fetchone())
    expected = [(len(range(number, ROWS, 3)),) * 2 for number in range(3)]
    if counts != expected:
        raise RuntimeError(f"the sinks have {counts}, not {expected} rows and messages")


def write_csv(path: Path) -> None:
    with path.open("w") as file:
        for number in range(ROWS):
            head = f"{_REGIONS[number % 3]},{number % 1_000_000 / 100:.2f},{number % 9},{number},"
            file.write(f"{head}{'x' * (_ROW_BYTES - 1 - len(head))}\n")


def _run_pipeline(home: Path, csv: Path, connection: Connection) -> float:
    connection.execute("DROP TABLE IF EXISTS public.orders")
    delete_messages(connection)
    for name in ("lake", "lines"):
        rmtree(home / name, ignore_errors=True)
    copyfile(csv, home / "in" / "rows.csv")
    elapsed = seconds(lambda: _run(home, "pipeline", "run", "Main", "--once", "--master", MASTER))
    check_sinks(home, connection)
    return ROWS / elapsed


def _run_plainly(home: Path, csv: Path, url: str, connection: Connection) -> float:
    connection.execute("TRUNCATE public.plain")
    targets = (
        {"format": "parquet", "path": str(home / "plain-lake")},
        {"format": "json", "path": str(home / "plain-lines")},
        {"url": url, "table": "public.plain"},
    )
    chosen = [{**target, "filter": f"region = '{name}'"} for target, name in zip(targets, _REGIONS, strict=True)]

    def run() -> None:
        with plain_spark(MASTER) as spark:
            spark.run(csv, _SCHEMA, chosen)

    return ROWS / seconds(run)


def _run(home: Path, *arguments: str) -> None:
    command: Sequence[str] = [sys.executable, "-m", "postroom", *arguments, "--home", str(home)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    sys.stdout.write(f"{measure()}\n")
