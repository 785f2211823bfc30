"""The progress of bulk files only goes forward."""

from __future__ import annotations

import uuid
from typing import Any, cast

from postroom.messagebox.connection import Connection
from postroom.spark.bulk.progress import BulkMeter

A, B = uuid.UUID(int=1), uuid.UUID(int=2)
#: A file: its id, size, rows, bad rows, and bytes of finished splits.
File = tuple[uuid.UUID, int, int, int, int]


class Files:
    """A MessageBox with the given unfinished files."""

    def __init__(self) -> None:
        self.files: list[File] = []

    def execute(self, *_: Any) -> Files:
        return self

    def fetchall(self) -> list[File]:
        return self.files


def test_progress_never_goes_back_over_several_rounds() -> None:
    box, meter = Files(), BulkMeter("bulk", uuid.uuid4())
    connection = cast(Connection, box)
    readings = []

    def read(now: float, *files: File, counts: dict[str, int] | None = None) -> None:
        box.files = list(files)
        readings.append(meter.read(connection, now, counts))

    # An earlier process has published 100 rows, one of them bad.
    read(0, (A, 1_000, 100, 1, 400))
    read(1, (A, 1_000, 150, 1, 400), (B, 500, 0, 0, 0))
    # A is finished. Its last rows were not read.
    read(2, (B, 500, 30, 2, 250))
    read(3, counts={"rows": 100 + 60, "bad": 2})
    # The next round claims another file.
    read(4, (A, 2_000, 0, 0, 0))
    read(5, (A, 2_000, 10, 0, 2_000))
    read(6, counts={"rows": 160 + 25, "bad": 2})
    assert [one.rows for one in readings] == [0, 50, 80, 160, 160, 170, 185]
    assert [one.bad for one in readings] == [0, 0, 2, 2, 2, 2, 2]
    done = [one.bytes_total - one.bytes_left for one in readings]
    assert done == [400, 400, 1_250, 1_500, 1_500, 3_500, 3_500]
    assert all(one.rate >= 0 for one in readings)
    assert readings[1].rate == 50
    assert str(readings[-1]) == "bulk: 185 rows, 2 bad, nothing left"
