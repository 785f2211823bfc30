"""Bulk: from rows of a CSV file to committed queue rows on local[2], against COPY by two writers.

python -m bench.bulk
"""

from __future__ import annotations

import random

from bench.copies import RecordedTransaction, copy_with_two_writers, record_rows
from bench.messagebox import ORDERS, REGIONS, MeasuredBox, measured_box
from bench.ratios import Result, compute_ratio, measure_alternately, seconds
from bench.streaming import write_claims
from postroom import adapters, pipelines
from postroom.messagebox.connection import Login
from postroom.messagebox.intake import file_claims
from postroom.spark.bulk.bulk_files import BulkFiles
from postroom.spark.settings import add_bulk_settings
from tests.support.spark_session import open_session

_ROWS = 300_000
_ROW_BYTES = 200
_TRANSACTIONS = 30


def measure() -> Result:
    """Return rows/s of the bulk reader over rows/s of the bare COPY."""
    reader = adapters.SparkReader(
        "csv", "in", schema="region string, total decimal(12,2), priority int, number int, note string", settle=0.0
    )
    columns = tuple(column.name for column in reader.known_columns or ())
    pipeline = pipelines.Rows(promote=ORDERS).with_columns(columns, reader.body_column)
    content = _csv(_ROWS)
    with (
        measured_box(adapter=reader, pipeline=pipeline) as box,
        open_session(box.home, master="local[2]", settings=add_bulk_settings(None)) as session,
    ):
        login = Login(url=box.url, user=box.host.role_name)

        def receive_bulk() -> float:
            file_claims.number_claims(box.connection, write_claims(box, [content]))
            files = BulkFiles(session, box.location, login=login, home=box.home, paced=False)

            def publish() -> None:
                with login.connect("bulk") as connection:
                    while files.receive(connection):
                        pass

            elapsed = seconds(publish)
            assert box.one("SELECT count(*) FROM spool") == _ROWS
            return _ROWS / elapsed

        receive_bulk()
        recorded = record_rows(box, transactions=_TRANSACTIONS)

        def measure_bulk() -> float:
            rate = receive_bulk()
            box.empty()
            return rate

        pairs = measure_alternately(measure_bulk, lambda: _copy(box, recorded))
    ratio, spread = compute_ratio(pairs)
    rate, bare = (sorted(side)[len(side) // 2] for side in zip(*pairs, strict=True))
    return Result(
        name=f"bulk: CSV rows of {_ROW_BYTES} bytes on local[2], 1,000 subscriptions, 2.5 matches a row,"
        " against COPY of the same rows by two writers",
        group="C",
        measured=ratio,
        bar=0.45,
        spread=spread,
        detail=f"{rate:,.0f} against {bare:,.0f} rows/s, with the start of the job",
    )


def _copy(box: MeasuredBox, recorded: list[RecordedTransaction]) -> float:
    elapsed = seconds(lambda: copy_with_two_writers(box, recorded))
    assert box.one("SELECT count(*) FROM spool") == _ROWS
    box.empty()
    return _ROWS / elapsed


def _csv(rows: int) -> bytes:
    rng = random.Random(7)
    lines = []
    for number in range(rows):
        head = f"R{rng.randrange(REGIONS)},{rng.randrange(10**7) / 100:.2f},{rng.randrange(9)},{number},"
        lines.append(head + "x" * (_ROW_BYTES - 1 - len(head)))
    return ("\n".join(lines) + "\n").encode()


if __name__ == "__main__":
    import sys

    sys.stdout.write(f"{measure()}\n")
