"""What ``postroom demo bulk`` sends, and what must be in the lake."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

from postroom.example_applications import Step, drop_files

ROWS, BAD = 2_000, 3


def steps() -> Iterator[Step]:
    """One file with a few rows that cannot be read."""
    dice = random.Random(2026)
    rows = [(dice.choice(["Oslo", "Rome", "Lima"]), Decimal(dice.randrange(1, 50_000)) / 100) for _ in range(ROWS)]
    lines = [f"{number},{store},{amount}" for number, (store, amount) in enumerate(rows)]
    lines += [f"{ROWS + number},Oslo,a lot" for number in range(BAD)]
    content = "\n".join(["id,store,amount", *lines, ""]).encode()
    yield Step(
        what=f"{ROWS + BAD} rows dropped, {BAD} of them bad",
        act=drop_files("exports", {"sales.csv": content}),
        outputs={"lake": Counter(rows)},
        read_output=_read_lake,
        suspended=Counter(PIPELINE=BAD),
    )


def _read_lake(lake: Path) -> Iterator[tuple[str, Decimal]]:
    import pyarrow.parquet as pq

    for path in lake.rglob("*.parquet"):
        # A folder whose name starts with a dot or an underscore is not part of the table.
        if not any(part.startswith((".", "_")) for part in path.relative_to(lake).parts):
            table = pq.ParquetFile(path).read(columns=["store", "amount"])
            yield from zip(*table.to_pydict().values(), strict=True)
