"""Idempotent publishing: the ids of a unit of work, and the digest of a publish with a key.

A unit is an interchange, or a publish that a caller names with a key. What commits together with its receipt has a
random unit at each attempt (ADR 0005); other units get the same ids when they are published again. An id has 82 bits of
its unit, a kind and a number, so that the ids of one unit are neighbours in the indexes:

    48 bits of the unit | version 8 | 12 bits of the unit | variant | 22 bits of the unit | 2 bits kind | 38 bits number
"""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum

import msgspec
import numpy as np
import numpy.typing as npt

from postroom.errors import BadValue
from postroom.message import Message
from postroom.values import ValueType, check_value

#: 16 bytes each, as PostgreSQL's binary COPY expects them.
Ids = npt.NDArray[np.void]

NUMBER_BITS = 38

_encode_json = msgspec.json.Encoder().encode


class IdKind(IntEnum):
    """The type of thing that an id names. Numbers are unique within a unit and a kind."""

    MESSAGE = 0
    PART = 1
    INSTANCE = 2
    REPORT = 3


@dataclass(frozen=True, slots=True)
class Units:
    """The unit of each row of a batch, as the two 64-bit halves that its ids share."""

    high: npt.NDArray[np.uint64]
    low: npt.NDArray[np.uint64]

    @classmethod
    def from_uuids(cls, units: Sequence[uuid.UUID]) -> Units:
        """Return the units of a batch, one per row."""
        high, low = np.array([_split_unit(unit) for unit in units], dtype=np.uint64).reshape(-1, 2).T
        return cls(high, low)

    def take(self, rows: npt.NDArray[np.int64]) -> Units:
        """Return the units of some rows."""
        return Units(self.high[rows], self.low[rows])

    def derive_ids(self, kind: IdKind, numbers: npt.NDArray[np.int64]) -> Ids:
        """Return one id per row."""
        ids = np.empty((len(numbers), 2), dtype=">u8")
        ids[:, 0] = self.high
        ids[:, 1] = self.low | np.uint64(kind << NUMBER_BITS) | numbers.astype(np.uint64)
        return ids.view("V16").reshape(-1)


def derive_id(unit: uuid.UUID, kind: IdKind, number: int) -> uuid.UUID:
    """Return one id of a unit."""
    high, low = _split_unit(unit)
    return uuid.UUID(int=high << 64 | low | kind << NUMBER_BITS | number)


def to_id_array(ids: Sequence[uuid.UUID]) -> Ids:
    """Return ids as an array."""
    return np.frombuffer(b"".join(unit_id.bytes for unit_id in ids), dtype="V16")


def unit_for_key(secret: uuid.UUID, key: str) -> uuid.UUID:
    """Return the unit of an idempotency key of the programs of one host, which has this secret."""
    check_value(ValueType.STR, key)
    if not key.strip():
        raise BadValue(
            "The idempotency key of a publish is empty.",
            why="A second publish with the same key publishes nothing, so each key must be unique.",
            hint="Pass a unique key for each publish, or no key.",
        )
    return _derive_unit("key", secret.bytes + key.encode())


def interchange_for_key(location_id: uuid.UUID, key: str, *, sender: str = "") -> uuid.UUID:
    """Return the interchange of an idempotency key at one receive location. Each sender has its own keys."""
    name = sender.encode()
    return _derive_unit("sent", location_id.bytes + len(name).to_bytes(8, "big") + name + key.encode())


def unit_for_chunk(seed: uuid.UUID, chunk: int) -> uuid.UUID:
    """Return the unit of one chunk of an interchange. The unit of the first chunk is the seed of the interchange."""
    return _derive_unit("chunk", seed.bytes + chunk.to_bytes(8, "big")) if chunk else seed


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


def unit_for_nack(instance_id: uuid.UUID) -> uuid.UUID:
    """Return the unit of the negative acknowledgement about a failed instance."""
    return _derive_unit("nack", instance_id.bytes)


def _derive_unit(purpose: str, name: bytes) -> uuid.UUID:
    person = f"postroom-{purpose}".encode()
    return uuid.UUID(bytes=hashlib.blake2b(name, digest_size=16, person=person).digest())


def _split_unit(unit: uuid.UUID) -> tuple[int, int]:
    """Return the two halves of an id that has kind 0 and number 0."""
    return (unit.int >> 64 & ~0xF000) | 0x8000, 0b10 << 62 | (unit.int & 0x3FFFFF) << 40


# -- digests -----------------------------------------------------------------------------------------------------------


def digest_messages(messages: Sequence[Message]) -> bytes:
    """Return a digest of the contexts and the parts of messages, in order. Generated ids are not in it."""
    digest = hashlib.blake2b(digest_size=16, person=b"postroom-publish")
    for message in messages:
        parts = [(part.name, part.content_type, part.charset, part.body.size) for part in message.parts]
        _add_to_digest(digest, message.context.to_json(), message.body_part_name, parts)
        for part in message.parts:
            for chunk in part.body.chunks():
                digest.update(chunk)
    return digest.digest()


def digest_request(message: Message) -> bytes:
    """Return a digest of the request of a program. A publish of the same message has another digest."""
    return b"request" + digest_messages([message])


def start_request_digest(content_type: str | None, query: str) -> hashlib.blake2b:
    """Return the digest of a request without its body. The caller adds the body while it reads it."""
    digest = hashlib.blake2b(digest_size=16, person=b"postroom-request")
    _add_to_digest(digest, content_type, query)
    return digest


def _add_to_digest(digest: hashlib.blake2b, *values: object) -> None:
    text = _encode_json(values)
    digest.update(len(text).to_bytes(8, "big") + text)
