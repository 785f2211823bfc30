"""Receipts: what was published under a unit of work.

A publish inserts a receipt for each chunk of its unit, under a unique key, before it writes a message. If the receipt
exists, the chunk was published before, and the receipt stores the outcome.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from postroom.errors import KeyReused
from postroom.messagebox.connection import Call, Connection, read_value

_encode_json = msgspec.json.Encoder().encode


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """The record that a chunk of a unit of work was published, and its outcome."""

    unit: uuid.UUID
    chunk: int = 0
    outcome: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How much of an interchange is published, according to its receipts."""

    next_chunk: int = 0
    last_document: int = 0
    bad: int = 0
    done: bool = False

    @property
    def has_started(self) -> bool:
        """True if some of it is published, so that it cannot be all or nothing any more."""
        return bool(self.next_chunk or self.last_document)


def take_receipts(connection: Connection, receipts: Sequence[Receipt]) -> bool:
    """Insert the receipts. Return False if one of them exists. Waits for a transaction that inserts the same
    receipt."""
    inserted = connection.execute(
        "SELECT unit, chunk FROM take_receipts(%b::uuid[], %b::int[], %b::text[]::jsonb[])",
        (
            [receipt.unit for receipt in receipts],
            [receipt.chunk for receipt in receipts],
            [_encode_json(dict(receipt.outcome)).decode() for receipt in receipts],
        ),
    ).fetchall()
    return len(inserted) == len(receipts)


def read_outcome(connection: Connection, unit: uuid.UUID, digest: bytes) -> Mapping[str, Any]:
    """Return the outcome in the receipt of a unit that was published before. Raise KeyReused if the digest differs."""
    row = connection.execute("SELECT outcome, digest FROM read_receipts(ARRAY[%s::uuid])", (unit,)).fetchone()
    assert row is not None
    if row[1] != digest:
        raise KeyReused()
    outcome: Mapping[str, Any] = row[0]
    return outcome


def read_progress(connection: Connection, interchange_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Progress]:
    """Return how much of each interchange is published."""
    rows = connection.execute(
        "SELECT unit, last_chunk, last_document, bad, done FROM read_receipts(%b)", (list(interchange_ids),)
    )
    known = {
        unit: Progress(next_chunk=chunk + 1, last_document=last, bad=bad, done=done)
        for unit, chunk, last, bad, done in rows
    }
    return {interchange_id: known.get(interchange_id, Progress()) for interchange_id in interchange_ids}


def build_outcome_call(unit: uuid.UUID, outcome: Mapping[str, Any], digest: bytes) -> Call:
    """Return the call that stores the outcome in the receipt of a publish with an idempotency key."""
    return "record_outcome(%s::uuid, %s::jsonb, %b::bytea)", (unit, _encode_json(outcome).decode(), digest)


def read_key_secret(connection: Connection, host_id: int) -> uuid.UUID:
    """Return the secret from which the units of a host's idempotency keys derive."""
    return uuid.UUID(str(read_value(connection, "SELECT read_key_secret(%s::smallint)", host_id)))
