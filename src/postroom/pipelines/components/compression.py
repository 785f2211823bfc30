"""Gzip and zip archives, with constant memory: decoders with size limits, and encoders.

The same message has the same encoded content each time, so that a receiver can recognise a repeated delivery.
"""

from __future__ import annotations

import fnmatch
import io
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, cast

from postroom.errors import PipelineFailure, is_environment_error
from postroom.message import CHUNK_SIZE, Body, Message
from postroom.pipelines.components.contract import Decoder, Encoder, get_body, replace_body
from postroom.secrets.references import Secret
from postroom.temporary_bodies import Spool, slice_body, spool

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

#: The maximum size that BizTalk's pipelines accept (LRG-01).
MAX_SIZE = 4 << 30
#: Above the ratio of text files. A decompression bomb reaches a thousand.
MAX_RATIO = 200
#: The ratio is not checked below this size.
_MIN_CHECKED_SIZE = 16 << 20

#: zipfile supports other methods, but decompresses their blocks as a whole: 400 bytes of bzip2 are 300 MB.
_STREAMED_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: What zipfile raises for damaged archives: for names that are not UTF-8 or empty, too.
_DAMAGED = (zipfile.BadZipFile, zlib.error, struct.error, EOFError, OSError, ValueError, IndexError)
#: The maximum size of a directory entry of an archive.
_ENTRY_SIZE = 1 << 10

_AGAIN = "Send the file again; it may have been truncated in transit."

#: The earliest time that an archive can store.
_NO_TIME = (1980, 1, 1, 0, 0, 0)
#: Above this size an entry of an archive needs the format for large files.
_LARGE = 1 << 30


class _Expanding(Decoder):
    #: The maximum size of the decompressed content, and its maximum ratio to the compressed size.
    max_size: int = MAX_SIZE
    max_ratio: int = MAX_RATIO

    def problems(self) -> list[str]:
        return [f"{name} is {value}, but must be at least 1." for name, value in self._limits if value < 1]

    @property
    def _limits(self) -> list[tuple[str, int]]:
        return [("max_size", self.max_size), ("max_ratio", self.max_ratio)]

    def _check_size(self, pieces: Iterator[bytes], compressed: int) -> Iterator[bytes]:
        size = 0
        for piece in pieces:
            size += len(piece)
            if size > max(_MIN_CHECKED_SIZE, compressed * self.max_ratio):
                raise PipelineFailure(
                    f"The decompressed content has more than {self.max_ratio} times its compressed size.",
                    why=f"{compressed:,} bytes decompress to more than {size:,}. This may be a decompression bomb.",
                    hint="If the content is valid, raise max_ratio of the component.",
                )
            yield piece


class Gzip(_Expanding):
    """Decompresses gzip, even with several members."""

    def decode(self, message: Message) -> Body:
        assert message.body is not None
        body = message.body.body
        return spool(self._check_size(_gunzip(body), body.size), max_size=self.max_size)


def _gunzip(body: Body) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    is_new_member, read = True, 0
    for chunk in body.chunks():
        data = chunk
        while data:
            if member.eof:
                if not data.strip(b"\0"):  # some writers pad the file
                    break
                member, is_new_member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), True
            try:
                piece = member.decompress(data, CHUNK_SIZE)
            except zlib.error as error:
                raise PipelineFailure(
                    f"The content is not gzip, or damaged, after {read:,} bytes.", why=f"{error}.", hint=_AGAIN
                ) from None
            is_new_member = False
            data = member.unused_data if member.eof else member.unconsumed_tail
            if piece:
                yield piece
        read += len(chunk)
    if is_new_member or not member.eof:
        raise PipelineFailure(
            "The gzip content is truncated." if read else "The content is empty.",
            why=f"The compressed data does not end within its {read:,} bytes.",
            hint=_AGAIN,
        )


class Zip(_Expanding):
    """Extracts one file of a zip archive: the only one, or the only one whose name matches ``entry`` (``*.xml``).

    ``password`` is a ``postroom.secret(...)`` with the archive's password, on the machines where the pipelines run.
    Only the traditional encryption of archives is supported, not AES.
    """

    entry: str = "*"
    password: Secret | None = None
    max_entries: int = 1_000

    @property
    def _limits(self) -> list[tuple[str, int]]:
        return [*super()._limits, ("max_entries", self.max_entries)]

    def decode(self, message: Message) -> Body:
        assert message.body is not None
        body = message.body.body
        try:
            with zipfile.ZipFile(cast(IO[bytes], _Archive(body, max_entries=self.max_entries))) as archive:
                entry = self._select_entry(archive)
                if entry.compress_type not in _STREAMED_METHODS:
                    raise _unsupported_failure(f"Its method is {entry.compress_type}, not 0 (stored) or 8 (deflated).")
                with archive.open(entry, pwd=self._read_password(entry)) as file:
                    pieces = iter(lambda: file.read(CHUNK_SIZE), b"")
                    # The sizes in the directory come from the sender, so only the real sizes are checked.
                    compressed = max(min(entry.compress_size, body.size), 1)
                    return spool(self._check_size(pieces, compressed), max_size=self.max_size)
        except PipelineFailure:
            raise
        except _DAMAGED as error:
            if is_environment_error(error):
                raise
            why = f"{str(error) or 'It is truncated'}."
            raise PipelineFailure("The content is not a zip archive, or damaged.", why=why, hint=_AGAIN) from None
        except NotImplementedError as error:  # zipfile raises it for unsupported methods
            raise _unsupported_failure(f"{error}.") from None
        except RuntimeError as error:  # zipfile raises it for passwords
            raise PipelineFailure(
                "The archive cannot be opened with the password of this pipeline.",
                why=f"{error}.",
                hint="Compare the sender's password with the secret that the component names.",
            ) from None

    def _select_entry(self, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
        if len(entries) > self.max_entries:
            raise _too_many_failure(f"{len(entries):,} files", self.max_entries)
        found = [entry for entry in entries if fnmatch.fnmatchcase(entry.filename, self.entry)]
        if len(found) != 1:
            names = ", ".join(entry.filename for entry in entries[:10]) or "none"
            raise PipelineFailure(
                f"The archive has {len(found) or 'no'} files that match {self.entry!r}; there must be one.",
                why=f"Its files are: {names[:300]}.",
                hint="Send one document per archive, or set entry of the component to the name of the file.",
            )
        return found[0]

    def _read_password(self, entry: zipfile.ZipInfo) -> bytes | None:
        if not entry.flag_bits & 1:
            return None
        if self.password is None:
            raise PipelineFailure(
                "The archive is encrypted, but the pipeline has no password.",
                hint='Set password: components.Zip(password=postroom.secret(env="ORDERS_ZIP_PASSWORD")).',
            )
        return self.password.read().encode()


def _unsupported_failure(why: str) -> PipelineFailure:
    return PipelineFailure(
        "The compression or encryption of the archive is not supported.",
        why=why,
        hint="Send it with the method deflate, and with traditional encryption or none.",
    )


class _Archive(io.RawIOBase):
    """A body as the seekable file of an archive, which is read in chunks. The directory has a maximum size, because
    zipfile reads it at once and makes objects of ten times its size."""

    def __init__(self, body: Body, *, max_entries: int) -> None:
        super().__init__()
        self._body = body
        self._max_entries = max_entries
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

    def read(self, size: int = -1, /) -> bytes | None:
        if size > max(CHUNK_SIZE, self._max_entries * _ENTRY_SIZE):
            raise _too_many_failure(f"a directory of {size:,} bytes", self._max_entries)
        return super().read(size)

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        view = memoryview(buffer).cast("B")
        length = max(0, min(len(view), self._body.size - self._position))
        if not length:
            return 0
        content = b"".join(slice_body(self._body, self._position, length).chunks())
        view[: len(content)] = content
        self._position += len(content)
        return len(content)


def _too_many_failure(what: str, max_entries: int) -> PipelineFailure:
    return PipelineFailure(
        f"The archive has {what}.",
        why=f"The maximum of this pipeline is {max_entries:,} files.",
        hint="If the archive is valid, raise max_entries of the component.",
    )


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
        with zipfile.ZipFile(written, "w") as archive, archive.open(entry, "w", force_zip64=body.size > _LARGE) as file:
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
