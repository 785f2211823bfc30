"""Receipts: what makes a repeated publish find that its work is done.

A publish first takes a receipt for each unit of work, under a unique key. A receipt that is taken already says that the
unit was published before, and what came of it.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from postroom.messagebox.connection import Connection


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """One chunk of a unit of work, and what came of it."""

    unit: uuid.UUID
    chunk: int = 0
    outcome: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How much of an interchange is published already, from its receipts."""

    next_chunk: int = 0
    last_document: int = 0
    bad: int = 0
    done: bool = False

    @property
    def begun(self) -> bool:
        """Whether some of it came in, so that it cannot be all or nothing any more."""
        return bool(self.next_chunk or self.last_document)


def take_receipts(connection: Connection, receipts: Sequence[Receipt]) -> bool:
    """Takes the receipts; False if one of them was taken before. Waits for a transaction that is taking the same."""
    taken = connection.execute(
        "SELECT unit, chunk FROM take_receipts(%s::uuid[], %s::int[], %s::jsonb[])",
        (
            [one.unit for one in receipts],
            [one.chunk for one in receipts],
            [json.dumps(dict(one.outcome)) for one in receipts],
        ),
    ).fetchall()
    return len(taken) == len(receipts)


def read_outcome(connection: Connection, unit: uuid.UUID) -> Mapping[str, Any]:
    """What the receipt of a unit says, which was taken before."""
    row = connection.execute("SELECT outcome FROM read_receipts(ARRAY[%s::uuid])", (unit,)).fetchone()
    assert row is not None
    outcome: Mapping[str, Any] = row[0]
    return outcome


def read_progress(connection: Connection, interchange_ids: Sequence[uuid.UUID]) -> dict[uuid.UUID, Progress]:
    """How far each interchange was published before, by its receipts."""
    rows = connection.execute(
        "SELECT unit, last_chunk, last_document, bad, done FROM read_receipts(%s)", (list(interchange_ids),)
    )
    known = {
        unit: Progress(next_chunk=chunk + 1, last_document=last, bad=bad, done=done)
        for unit, chunk, last, bad, done in rows
    }
    return {one: known.get(one, Progress()) for one in interchange_ids}
