"""What ``postroom demo failures`` sends, and the result that it expects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from postroom.example_applications import Step, drop_files
from postroom.messagebox.connection import Connection

KINDS = ["car", "house", "boat", "car", "house"]
MALFORMED = b'{"kind": "car"'


def steps() -> Iterator[Step]:
    """Nothing is suspended: every failure is routed to a subscriber."""
    claims = [json.dumps({"claim": number, "kind": kind}).encode() for number, kind in enumerate(KINDS)]

    def drop(home: Path, _: Connection) -> None:
        files = {f"claim-{number}.json": claim for number, claim in enumerate([*claims, MALFORMED])}
        drop_files(home / "claims", files)

    yield Step(
        what=f"{len(claims) + 1} claims dropped; one is malformed, one has no subscriber, and the insurer is down",
        act=drop,
        outputs={
            "out/cars": Counter(claim for claim in claims if b"car" in claim),
            "out/repair": Counter([MALFORMED, *(claim for claim in claims if b"boat" in claim)]),
            "out/tickets": Counter(claim for claim in claims if b"house" in claim),
        },
    )
