"""Direct lane: `publish_many` of a thousand messages with an idempotency key, against COPY of the same rows.

python -m bench.publish_many
"""

from __future__ import annotations

import statistics
import sys
import uuid
from decimal import Decimal

from bench.copies import record_rows
from bench.messagebox import REGIONS, Priority, Region, Total, measured_box
from bench.ratios import Result, compute_ratio, measure_alternately, seconds
from postroom.client.client import Client
from postroom.message import Message
from postroom.messagebox.connection import connect

_MESSAGES = 1_000
#: The number of publishes in each measurement, each with a key of its own.
_PUBLISHES = 5


def measure() -> Result:
    """Return messages/s of the publishes over messages/s of the bare COPY, by one writer each."""
    with measured_box() as box, Client(box.url) as client, connect(box.url) as writer:

        def publish() -> float:
            batches = [_make_messages() for _ in range(_PUBLISHES)]
            elapsed = seconds(lambda: [client.publish_many(batch, key=str(uuid.uuid4())) for batch in batches])
            assert box.one("SELECT count(*) FROM spool") == _PUBLISHES * _MESSAGES
            return _PUBLISHES * _MESSAGES / elapsed

        publish()
        recorded = record_rows(box, transactions=_PUBLISHES)

        def measure_publish() -> float:
            rate = publish()
            box.empty()
            return rate

        def copy() -> None:
            for transaction in recorded:
                transaction.write(writer)

        def measure_copy() -> float:
            elapsed = seconds(copy)
            assert box.one("SELECT count(*) FROM spool") == _PUBLISHES * _MESSAGES
            box.empty()
            return _PUBLISHES * _MESSAGES / elapsed

        pairs = measure_alternately(measure_publish, measure_copy)
    ratio, spread = compute_ratio(pairs)
    ours, bare = (statistics.median(side) for side in zip(*pairs, strict=True))
    return Result(
        name="direct lane: `publish_many` of 1,000 messages of 1 KB with an idempotency key, 1,000 subscriptions, 2.5"
        " matches a message, against COPY of the same rows by one writer",
        group="S",
        measured=ratio,
        bar=0.4,
        spread=spread,
        detail=f"{ours:,.0f} against {bare:,.0f} messages/s",
    )


def _make_messages() -> list[Message]:
    return [
        Message.of(b"x" * 1000, promoted={Region: f"R{number % REGIONS}", Total: Decimal(number), Priority: number % 9})
        for number in range(_MESSAGES)
    ]


if __name__ == "__main__":
    sys.stdout.write(f"{measure()}\n")
