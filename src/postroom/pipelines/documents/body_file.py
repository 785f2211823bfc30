"""A body as a seekable file object, for libraries that need one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

from postroom.message import Body, Bytes
from postroom.pipelines.documents.temporary_bodies import slice_body

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer


class BodyFile(io.RawIOBase):
    """Reads a body on demand. A body in a file is not loaded into memory."""

    def __init__(self, body: Body) -> None:
        super().__init__()
        self._body = body
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._body.size}[whence]
        if start + offset < 0:
            raise OSError(f"{start + offset} is before the start of the body")
        self._position = start + offset
        return self._position

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        length = max(0, min(len(view), self._body.size - self._position))
        if not length:
            return 0
        if isinstance(self._body, Bytes):
            content = self._body.data[self._position : self._position + length]
        else:
            content = b"".join(slice_body(self._body, self._position, length).chunks())
        view[: len(content)] = content
        self._position += len(content)
        return len(content)
