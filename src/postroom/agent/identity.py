"""Ids that derive from a unit of work. The same unit gets the same ids when it is published again.

A unit is an interchange, or a publish that a caller names with a key. An id has 82 bits of its unit, a kind and a
number, so that the ids of one unit are neighbours in the indexes:

    48 bits of the unit | version 8 | 12 bits of the unit | variant | 22 bits of the unit | 2 bits kind | 38 bits number
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from postroom.errors import BadValue
from postroom.values import ValueType, check_value

#: 16 bytes each, as PostgreSQL's binary COPY expects them.
Ids = npt.NDArray[np.void]

NUMBER_BITS = 38


class Kind(IntEnum):
    """The type of thing that an id names. Numbers are unique within a unit and a kind."""

    MESSAGE = 0
    PART = 1
    INSTANCE = 2
    REPORT = 3


@dataclass(frozen=True, slots=True)
class Units:
    """The unit of each row of a batch, as the two words that its ids start with."""

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, units: Sequence[uuid.UUID]) -> Units:
        words = [_words(unit) for unit in units]
        high, low = np.array(words, dtype=np.uint64).reshape(-1, 2).T
        return cls(high, low)

    def take(self, rows: npt.NDArray[np.int64]) -> Units:
        """Return the units of some rows."""
        return Units(self.high[rows], self.low[rows])

    def ids(self, kind: Kind, numbers: npt.NDArray[np.int64]) -> Ids:
        """Return one id per row, as an array of 16-byte values."""
        words = np.empty((len(numbers), 2), dtype=">u8")
        words[:, 0] = self.high
        words[:, 1] = self.low | np.uint64(kind << NUMBER_BITS) | numbers.astype(np.uint64)
        return words.view("V16").reshape(-1)


def derive_id(unit: uuid.UUID, kind: Kind, number: int) -> uuid.UUID:
    """Return one id of a unit."""
    high, low = _words(unit)
    return uuid.UUID(int=high << 64 | low | kind << NUMBER_BITS | number)


def to_id_array(ids: Sequence[uuid.UUID]) -> Ids:
    """Return an array of ids."""
    return np.frombuffer(b"".join(one.bytes for one in ids), dtype="V16")


def unit_for_key(key: str) -> uuid.UUID:
    """Return the unit of an idempotency key."""
    check_value(ValueType.STR, key)
    if not key.strip():
        raise BadValue(
            "The idempotency key of a publish is empty.",
            why="A second publish with the same key publishes nothing, so each key must be unique.",
            hint="Pass a unique key for each publish, or no key.",
        )
    return _derive_unit("key", key.encode())


def interchange_for_key(location_id: uuid.UUID, key: str) -> uuid.UUID:
    """Return the interchange of a sender's idempotency key at one receive location."""
    return _derive_unit("sent", location_id.bytes + key.encode())


def unit_for_chunk(interchange_id: uuid.UUID, chunk: int) -> uuid.UUID:
    """Return the unit of one chunk of an interchange. The unit of the first chunk is the interchange."""
    return _derive_unit("chunk", interchange_id.bytes + chunk.to_bytes(8, "big")) if chunk else interchange_id


def unit_for_split(interchange_id: uuid.UUID, start: int) -> uuid.UUID:
    """Return the unit of one split of a file, from the file and the start of the split."""
    return _derive_unit("split", interchange_id.bytes + start.to_bytes(8, "big"))


def unit_for_partition(stream_id: uuid.UUID, batch: int, partition: int) -> uuid.UUID:
    """Return the unit of one partition of a micro-batch, which Spark replays from its recorded offsets.

    A stream that is reset has a new ``stream_id``, because it counts its batches from zero again."""
    return _derive_unit("batch", stream_id.bytes + batch.to_bytes(8, "big") + partition.to_bytes(8, "big"))


def unit_for_failure(instance_id: uuid.UUID) -> uuid.UUID:
    """Return the unit of the error message about a failed instance."""
    return _derive_unit("failure", instance_id.bytes)


def _derive_unit(purpose: str, name: bytes) -> uuid.UUID:
    person = f"postroom-{purpose}".encode()
    return uuid.UUID(bytes=hashlib.blake2b(name, digest_size=16, person=person).digest())


def _words(unit: uuid.UUID) -> tuple[int, int]:
    return (unit.int >> 64 & ~0xF000) | 0x8000, 0b10 << 62 | (unit.int & 0x3FFFFF) << 40
