"""Encoders for gzip, zip archives, base64 and character sets, with constant memory.

The same message has the same encoded content each time, so that a receiver can recognise a repeated delivery.
"""

from __future__ import annotations

import base64
import io
import zipfile
import zlib
from collections.abc import Iterator

from postroom.errors import PipelineFailure
from postroom.message import Body, Message
from postroom.pipelines.components.contract import Encoder, get_body, replace_body
from postroom.pipelines.components.text import convert_text, encoding_problems
from postroom.pipelines.documents.temporary_bodies import Spool, spool

#: The earliest time that an archive can store.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
#: Above this size an entry of an archive needs the format for large files.
_LARGE = 1 << 30


class _Compressing(Encoder):
    #: 0 (none) to 9 (smallest).
    level: int = 6

    def problems(self) -> list[str]:
        return [] if 0 <= self.level <= 9 else [f"level is {self.level}, but must be between 0 and 9."]


class GzipEncoder(_Compressing):
    """Compresses with gzip. ``level`` is from 0 (no compression) to 9 (smallest result)."""

    def encode(self, message: Message) -> Message:
        content = spool(self._compress(get_body(message).body))
        return replace_body(message, content, content_type="application/gzip")

    def _compress(self, body: Body) -> Iterator[bytes]:
        # zlib writes no time and no name into the header.
        compressor = zlib.compressobj(self.level, wbits=zlib.MAX_WBITS | 16)
        for chunk in body.chunks():
            yield compressor.compress(chunk)
        yield compressor.flush()


class ZipEncoder(_Compressing):
    """Writes a zip archive with one file, whose name is ``entry``. Archives are not encrypted."""

    entry: str = "document"

    def problems(self) -> list[str]:
        found = super().problems()
        if not self.entry or self.entry.startswith("/") or not self.entry.isprintable() or "\\" in self.entry:
            found.append(f"entry is {self.entry!r}, but must be the name of a file in the archive.")
        elif {"", ".", ".."} & set(self.entry.split("/")):
            found.append(f"entry is {self.entry!r}, which is not a plain path in the archive.")
        return found

    def encode(self, message: Message) -> Message:
        body = get_body(message).body
        written = _SpoolFile()
        entry = zipfile.ZipInfo(self.entry, date_time=_NO_TIME)
        entry.compress_type, entry._compresslevel = zipfile.ZIP_DEFLATED, self.level  # type: ignore[attr-defined]
        with (
            zipfile.ZipFile(written, "w") as archive,
            archive.open(entry, "w", force_zip64=body.size > _LARGE) as file,
        ):
            for chunk in body.chunks():
                file.write(chunk)
        return replace_body(message, written.spool.body, content_type="application/zip")


class _SpoolFile(io.RawIOBase):
    """A file that can only be appended to. zipfile writes to it without seeking."""

    def __init__(self) -> None:
        self.spool = Spool()

    def writable(self) -> bool:
        return True

    def write(self, data: object, /) -> int:
        content = bytes(data)  # type: ignore[call-overload]
        self.spool.write(content)
        return len(content)


class Base64Encoder(Encoder):
    """Writes base64 in lines of ``line_length`` characters that end with CR LF. 0 writes one line without an end."""

    line_length: int = 76

    def problems(self) -> list[str]:
        if self.line_length >= 0 and self.line_length % 4 == 0:
            return []
        return [f"line_length is {self.line_length}, but must be a multiple of 4, or 0 for one line."]

    def encode(self, message: Message) -> Message:
        part = get_body(message)
        return replace_body(message, spool(self._encode_chunks(part.body)), content_type=part.content_type)

    def _encode_chunks(self, body: Body) -> Iterator[bytes]:
        width = self.line_length // 4 * 3 or 3
        pending = b""
        for chunk in body.chunks():
            pending += chunk
            whole = len(pending) // width * width
            yield self._encode_lines(pending[:whole])
            pending = pending[whole:]
        yield self._encode_lines(pending)

    def _encode_lines(self, data: bytes) -> bytes:
        encoded = base64.b64encode(data)
        length = self.line_length
        if not length:
            return encoded
        return b"".join(encoded[start : start + length] + b"\r\n" for start in range(0, len(encoded), length))


class CharsetEncoder(Encoder):
    """Converts text to the encoding ``target``, from the charset of the body part, or from UTF-8 if it has none.

    components.CharsetEncoder("windows-1252")

    A byte order mark is removed. The encodings ``utf-8-sig`` and ``utf-16`` write one. The encoding in the declaration
    of an XML document is not changed: use ``XmlAssembler(encoding=...)`` for XML.
    """

    target: str

    def __init__(self, target: str, **settings: object) -> None:
        super().__init__(**{"target": target, **settings})

    def problems(self) -> list[str]:
        return encoding_problems(self.target)

    def encode(self, message: Message) -> Message:
        part = get_body(message)
        source = part.charset or "utf-8"
        if encoding_problems(source):
            raise PipelineFailure(
                f"The charset of the message, {source!r}, is not known.",
                hint="Publish the message with the charset of its body, or without one if it is UTF-8.",
            )
        converted = convert_text(part.body, source, self.target, hint="Correct the message, and resume with it.")
        return replace_body(message, spool(converted), content_type=part.content_type, charset=self.target)
