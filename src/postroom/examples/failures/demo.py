"""What ``postroom demo failures`` sends, and the result that it expects."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator

from postroom.example_applications import Step, drop_files

KINDS = ["car", "house", "boat", "car", "house"]
MALFORMED = b'{"kind": "car"'


def steps() -> Iterator[Step]:
    """Nothing is suspended: every failure is routed to a subscriber."""
    claims = [json.dumps({"claim": number, "kind": kind}).encode() for number, kind in enumerate(KINDS)]
    files = {f"claim-{number}.json": claim for number, claim in enumerate([*claims, MALFORMED])}
    yield Step(
        what=f"{len(claims) + 1} claims dropped; one is malformed, one has no subscriber, and the insurer is down",
        act=drop_files("claims", files),
        outputs={
            "out/cars": Counter(claim for claim in claims if b"car" in claim),
            "out/repair": Counter([MALFORMED, *(claim for claim in claims if b"boat" in claim)]),
            "out/tickets": Counter(claim for claim in claims if b"house" in claim),
        },
    )
