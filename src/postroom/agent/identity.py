"""Ids that derive from a unit of work: the same unit, published again, would get the same ids.

A unit is an interchange, or what a caller names with a key. An id keeps 82 bits of its unit and ends in a kind and
a running number, so that the ids of one unit stand side by side in the indexes:

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

#: 16 bytes each, as PostgreSQL's binary COPY wants them.
Ids = npt.NDArray[np.void]

NUMBER_BITS = 38


class Kind(IntEnum):
    """What an id names, so that the numbers of one unit never collide."""

    MESSAGE = 0
    PART = 1
    INSTANCE = 2
    REPORT = 3


@dataclass(frozen=True, slots=True)
class Units:
    """The unit of each row of a batch, as the two words that its ids begin with."""

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]

    @classmethod
    def of(cls, units: Sequence[uuid.UUID]) -> Units:
        words = [_words(unit) for unit in units]
        high, low = np.array(words, dtype=np.uint64).reshape(-1, 2).T
        return cls(high, low)

    def take(self, rows: npt.NDArray[np.int64]) -> Units:
        """The units of some rows."""
        return Units(self.high[rows], self.low[rows])

    def ids(self, kind: Kind, numbers: npt.NDArray[np.int64]) -> Ids:
        """One id per row, as an array of 16-byte values."""
        words = np.empty((len(numbers), 2), dtype=">u8")
        words[:, 0] = self.high
        words[:, 1] = self.low | np.uint64(kind << NUMBER_BITS) | numbers.astype(np.uint64)
        return words.view("V16").reshape(-1)


def derive_id(unit: uuid.UUID, kind: Kind, number: int) -> uuid.UUID:
    """The id of one thing of a unit."""
    high, low = _words(unit)
    return uuid.UUID(int=high << 64 | low | kind << NUMBER_BITS | number)


def to_id_array(ids: Sequence[uuid.UUID]) -> Ids:
    """Ids that are at hand one by one, as an array."""
    return np.frombuffer(b"".join(one.bytes for one in ids), dtype="V16")


def unit_for_key(key: str) -> uuid.UUID:
    """The unit that a caller's own key names: the same key, the same unit."""
    check_value(ValueType.STR, key)
    if not key.strip():
        raise BadValue(
            "The key of a publish is empty.",
            why="It names the publish: under one key nothing is published twice, and this one would be everybody's.",
            hint="Give each publish a key of its own, or none.",
        )
    return _derive_unit("key", key.encode())


def interchange_for_key(location_id: uuid.UUID, key: str) -> uuid.UUID:
    """The interchange that a sender's own key names at one receive location: the same key, the same interchange."""
    return _derive_unit("sent", location_id.bytes + key.encode())


def unit_for_chunk(interchange_id: uuid.UUID, chunk: int) -> uuid.UUID:
    """The unit of one chunk of an interchange that is published in several; the first chunk's is the interchange's."""
    return _derive_unit("chunk", interchange_id.bytes + chunk.to_bytes(8, "big")) if chunk else interchange_id


def unit_for_split(interchange_id: uuid.UUID, start: int) -> uuid.UUID:
    """The unit of one split of a file that is read in many places at once: the file, and where the split starts."""
    return _derive_unit("split", interchange_id.bytes + start.to_bytes(8, "big"))


def unit_for_partition(stream_id: uuid.UUID, batch: int, partition: int) -> uuid.UUID:
    """The unit of one partition of a micro-batch, which Spark replays alike from the offsets that it has written down.
    ``stream_id`` is new whenever the stream begins anew, and counts its batches from zero again."""
    return _derive_unit("batch", stream_id.bytes + batch.to_bytes(8, "big") + partition.to_bytes(8, "big"))


def unit_for_failure(instance_id: uuid.UUID) -> uuid.UUID:
    """The unit of the error message about an instance that failed."""
    return _derive_unit("failure", instance_id.bytes)


def _derive_unit(purpose: str, name: bytes) -> uuid.UUID:
    person = f"postroom-{purpose}".encode()
    return uuid.UUID(bytes=hashlib.blake2b(name, digest_size=16, person=person).digest())


def _words(unit: uuid.UUID) -> tuple[int, int]:
    return (unit.int >> 64 & ~0xF000) | 0x8000, 0b10 << 62 | (unit.int & 0x3FFFFF) << 40
