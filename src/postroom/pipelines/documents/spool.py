"""A body that was made on the way, in memory while it is small and in a file without a name when it is not.

Such a file goes with the last body that refers to it, and with the process however that ends.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from postroom.errors import PipelineFailure
from postroom.message import CHUNK_SIZE, Body, Bytes, FileSlice

#: Up to here a body stays in memory.
IN_MEMORY = 1 << 20


class _NamelessFile:
    """A file that is closed, and so gone, with the last reference to it."""

    def __init__(self) -> None:
        with tempfile.TemporaryFile(prefix="postroom-", buffering=0) as file:
            self.number = os.dup(file.fileno())
        weakref.finalize(self, os.close, self.number)

    def append(self, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(self.number, view) :]


@dataclass(frozen=True, slots=True, kw_only=True)
class SpooledSlice:
    """Some bytes of a file that has no name; any number of threads may read it."""

    file: _NamelessFile
    offset: int
    length: int

    @property
    def size(self) -> int:
        return self.length

    def chunks(self) -> Iterator[bytes]:
        position, end = self.offset, self.offset + self.length
        while position < end:
            chunk = os.pread(self.file.number, min(CHUNK_SIZE, end - position), position)
            if not chunk:
                raise OSError(f"A spooled body ended {end - position} bytes early.")
            position += len(chunk)
            yield chunk


#: Where the second of two bodies begins that stand beside each other: farther than any body is long. What a map made
#: may stand beside what a disassembler has written.
WRITTEN, MAPPED = 1 << 60, 1 << 61


@dataclass(frozen=True, slots=True, kw_only=True)
class _Beside:
    """Two bodies with a gap between them, of which slices are taken. The first may grow and its slices stay."""

    first: Body
    second: Body
    apart: int

    @property
    def size(self) -> int:
        return self.apart + self.second.size

    def chunks(self) -> Iterator[bytes]:
        raise TypeError("Two bodies beside each other are no content of their own.")


def beside(first: Body, second: Body, *, apart: int) -> Body:
    """A place for slices (``cut``) of either body; those of the second begin ``apart`` from their own places."""
    return _Beside(first=first, second=second, apart=apart)


class Spool:
    """Takes bytes as they come; ``body`` is all of them, ``slice`` some."""

    def __init__(self) -> None:
        self._held = bytearray()
        self._file: _NamelessFile | None = None
        self.size = 0

    def write(self, data: bytes) -> None:
        self.size += len(data)
        if self._file is None and self.size <= IN_MEMORY:
            self._held += data
            return
        if self._file is None:
            self._file = _NamelessFile()
            self._file.append(bytes(self._held))
            self._held.clear()
        self._file.append(data)

    def append(self, body: Body) -> int:
        """All of a body; where it begins."""
        start = self.size
        for chunk in body.chunks():
            self.write(chunk)
        return start

    def slice(self, offset: int, length: int) -> Body:
        if self._file is None:
            return Bytes(bytes(self._held[offset : offset + length]))
        return SpooledSlice(file=self._file, offset=offset, length=length)

    @property
    def body(self) -> Body:
        return self.slice(0, self.size)


def spool(chunks: Iterable[bytes], *, max_size: int) -> Body:
    """A body of these pieces, in flat memory; PipelineFailure if they are more than ``max_size`` bytes."""
    kept = Spool()
    for chunk in chunks:
        if kept.size + len(chunk) > max_size:
            raise PipelineFailure(
                f"The decoded content has more than {max_size:,} bytes.",
                why="That is the limit of this pipeline; what goes on growing may be made to do harm.",
                hint="If it is meant to be so large, raise max_size of the component.",
            )
        kept.write(chunk)
    return kept.body


def cut(body: Body, offset: int, length: int) -> Body:
    """Some bytes of a body, without reading it where it can be helped."""
    match body:
        case FileSlice():
            return replace(body, offset=body.offset + offset, length=length)
        case SpooledSlice():
            return SpooledSlice(file=body.file, offset=body.offset + offset, length=length)
        case _Beside():
            if offset < body.apart:
                return cut(body.first, offset, length)
            return cut(body.second, offset - body.apart, length)
    if offset == 0 and length == body.size:
        return body
    return Bytes(b"".join(body.chunks())[offset : offset + length])
