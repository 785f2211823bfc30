"""Plain Spark, the baseline of the sinks: a process of its own with stock settings.

It reads jobs from standard input, one JSON object in a line, and answers each with its seconds. A job reads a CSV file
and writes it, once for each target:

    {"csv": "in.csv", "schema": "region STRING, body STRING",
     "targets": [{"format": "parquet", "path": "out", "filter": "region = 'EU'"},
                 {"url": "postgresql://…", "table": "t"}]}
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bench.ratios import seconds
from postroom.spark.java import find_java

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession


class PlainSpark:
    """A running process."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def run(self, csv: Path, schema: str, targets: Sequence[Mapping[str, str]]) -> float:
        """Run a job. Return its seconds."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps({"csv": str(csv), "schema": schema, "targets": list(targets)}) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"Plain Spark has ended:\n{self._log.read_text()[-5000:]}")
        return float(answer)


@contextmanager
def plain_spark(master: str) -> Iterator[PlainSpark]:
    """Start a process. It ends with the block."""
    with tempfile.TemporaryDirectory(prefix="postroom-bench-") as folder:
        log = Path(folder) / "log"
        environment = {**os.environ, "JAVA_HOME": str(find_java()), "PYSPARK_PYTHON": sys.executable}
        with log.open("w") as output:
            process = subprocess.Popen(
                [sys.executable, "-m", "bench.plain_spark", master, folder],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=output,
                text=True,
                env=environment,
            )
        try:
            yield PlainSpark(process, log)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait()


def _main(master: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    # The answers only: Spark writes to standard output, too.
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    session = (
        SparkSession.builder.master(master)
        .config("spark.ui.enabled", "false")
        .config("spark.local.dir", folder)
        .config("spark.sql.warehouse.dir", f"{folder}/warehouse")
        .getOrCreate()
    )
    for line in sys.stdin:
        answers.write(f"{seconds(partial(_run, session, json.loads(line)))}\n")
        answers.flush()
    session.stop()


def _run(session: SparkSession, job: Mapping[str, Any]) -> None:
    rows = session.read.schema(job["schema"]).csv(job["csv"])
    for target in job["targets"]:
        chosen = rows.where(target["filter"]) if "filter" in target else rows
        if "table" in target:
            copy = partial(_copy, target["url"], target["table"])
            chosen.mapInArrow(copy, "rows long").write.format("noop").mode("overwrite").save()
        else:
            chosen.write.mode("overwrite").format(target["format"]).save(target["path"])


def _copy(url: str, table: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Copy the rows of a task into a table, in one transaction."""
    import psycopg
    import pyarrow as pa

    with psycopg.connect(url) as connection:
        for batch in batches:
            with connection.cursor().copy(f"COPY {table} FROM STDIN") as copy:
                for row in zip(*(column.to_pylist() for column in batch.columns), strict=True):
                    copy.write_row(row)
            yield pa.RecordBatch.from_pydict({"rows": [batch.num_rows]})


if __name__ == "__main__":
    _main(*sys.argv[1:])
