"""Bulk to sinks with kills: a CSV file of 500,000 rows into a Parquet, a JSON and a table sink, as in `sinks_once.py`.

    python -m bench.sinks_killed

`postroom pipeline run --once` is killed three times with SIGKILL and started again: while it receives, when the first
rows are in the table, and when half of all rows are in the sinks. At the end each row is in its sink once. It is not
part of a group, because it takes some minutes and has no baseline.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import duckdb

from bench.sinks_once import MASTER, ROWS, apply, check_sinks, write_csv
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.embedded import EmbeddedServer


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        home = Path(folder)
        home.chmod(0o755)  # if started by root, the server runs as another account
        (home / "in").mkdir()
        write_csv(home / "in" / "rows.csv")
        with EmbeddedServer(home / ".postroom" / "postgres") as server:
            apply(home, server.url())
            with connect(server.url()) as connection:
                connection.execute("CREATE SCHEMA IF NOT EXISTS public")
                _run_with_kills(home, connection)
                check_sinks(home, connection)
                violations = subprocess.run([sys.executable, "-m", "postroom", "check", "--home", str(home)]).returncode
    _print(f"{ROWS:,} rows are in the sinks, each of them once")
    return violations


def _run_with_kills(home: Path, connection: Connection) -> None:
    moments: list[tuple[str, Callable[[], bool]]] = [
        ("a quarter of the rows is received", lambda: _count(connection, "spool") > ROWS // 4),
        ("the first rows are in the table", lambda: _count(connection, "public.orders") > 0),
        ("half of the rows are in the sinks", lambda: _count_written(home, connection) > ROWS // 2),
    ]
    for moment, has_come in moments:
        with _start(home) as running:
            while not has_come():
                if running.poll() is not None:
                    raise RuntimeError(f"The pipeline has ended before {moment}.")
                time.sleep(0.2)
            running.kill()
        _print(f"killed when {moment}: {_count_written(home, connection):,} rows are in the sinks")
    with _start(home) as running:
        pass
    if running.returncode:
        raise RuntimeError(f"The pipeline failed with exit code {running.returncode}.")


def _start(home: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "postroom", "pipeline", "run", "Main", "--once", "--master", MASTER]
    return subprocess.Popen([*command, "--home", str(home)])


def _count_written(home: Path, connection: Connection) -> int:
    """Count the rows in the three sinks."""
    count = _count(connection, "public.orders")
    with duckdb.connect() as reader:
        for format, files in (("parquet", "lake/batch=*/*.parquet"), ("json", "lines/batch=*/*.json")):
            if any(home.glob(files)):
                found = reader.execute(f"SELECT count(*) FROM read_{format}('{home}/{files}')").fetchone()
                count += found[0] if found else 0
    return count


def _count(connection: Connection, table: str) -> int:
    """Count the rows of a table. One that does not exist yet has none."""
    if connection.execute("SELECT to_regclass(%s)", (table,)).fetchone() == (None,):
        return 0
    row = connection.execute(f"SELECT count(*) FROM {table}".encode()).fetchone()
    return row[0] if row else 0


def _print(what: str) -> None:
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
