"""Bodies that are in memory if they are small, else in an unnamed temporary file.

The operating system deletes such a file when the last body that refers to it is gone, or when the process ends.
"""

from __future__ import annotations

import os
import tempfile
import weakref
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from postroom.errors import PipelineFailure
from postroom.message import CHUNK_SIZE, Body, Bytes, FileSlice

#: The maximum size of a body that stays in memory.
MAX_IN_MEMORY = 1 << 20


class _UnnamedFile:
    """A temporary file that is closed, and so deleted, with the last reference to it."""

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
    """A range of bytes of an unnamed file. It is safe for threads."""

    file: _UnnamedFile
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


#: The offsets at which the second of two joined bodies starts: beyond the length of any body. The documents that a
#: disassembler has written start at the first, the documents that a map has made at the second.
WRITTEN_OFFSET, MAPPED_OFFSET = 1 << 60, 1 << 61


@dataclass(frozen=True, slots=True, kw_only=True)
class _JoinedBodies:
    """Two bodies in one address space, with a gap between them. The first may grow without moving the second."""

    first: Body
    second: Body
    offset: int

    @property
    def size(self) -> int:
        return self.offset + self.second.size

    def chunks(self) -> Iterator[bytes]:
        raise TypeError("Joined bodies have no content of their own. Read a slice of them with slice_body.")


def join_bodies(first: Body, second: Body, *, offset: int) -> Body:
    """Return a body from which ``slice_body`` reads either one. Positions in the second start at ``offset``."""
    return _JoinedBodies(first=first, second=second, offset=offset)


class Spool:
    """Collects bytes. ``body`` returns all of them, ``slice`` a range."""

    def __init__(self, *, max_in_memory: int = MAX_IN_MEMORY) -> None:
        self._max_in_memory = max_in_memory
        self._buffer = bytearray()
        self._file: _UnnamedFile | None = None
        self.size = 0

    def write(self, data: bytes) -> None:
        self.size += len(data)
        if self._file is None and self.size <= self._max_in_memory:
            self._buffer += data
            return
        if self._file is None:
            self._file = _UnnamedFile()
            self._file.append(bytes(self._buffer))
            self._buffer.clear()
        self._file.append(data)

    def append(self, body: Body) -> int:
        """Write a whole body and return the offset at which it starts."""
        start = self.size
        for chunk in body.chunks():
            self.write(chunk)
        return start

    def slice(self, offset: int, length: int) -> Body:
        if self._file is None:
            return Bytes(bytes(self._buffer[offset : offset + length]))
        return SpooledSlice(file=self._file, offset=offset, length=length)

    @property
    def body(self) -> Body:
        return self.slice(0, self.size)


def spool(chunks: Iterable[bytes], *, max_size: int | None = None) -> Body:
    """Return a body of these chunks, in constant memory. Raises PipelineFailure if it exceeds ``max_size`` bytes."""
    content = Spool()
    for chunk in chunks:
        if max_size is not None and content.size + len(chunk) > max_size:
            raise PipelineFailure(
                f"The decoded content has more than {max_size:,} bytes.",
                why="This is the maximum size for this component. It protects against decompression bombs.",
                hint="If the content is valid, raise max_size of the component.",
            )
        content.write(chunk)
    return content.body


def slice_body(body: Body, offset: int, length: int) -> Body:
    """Return a range of bytes of a body. A body in a file is not read."""
    match body:
        case FileSlice():
            return replace(body, offset=body.offset + offset, length=length)
        case SpooledSlice():
            return SpooledSlice(file=body.file, offset=body.offset + offset, length=length)
        case _JoinedBodies():
            if offset < body.offset:
                return slice_body(body.first, offset, length)
            return slice_body(body.second, offset - body.offset, length)
    if offset == 0 and length == body.size:
        return body
    return Bytes(b"".join(body.chunks())[offset : offset + length])
