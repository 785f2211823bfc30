"""Decoders for compressed content: gzip, and zip archives. In flat memory, and within limits."""

from __future__ import annotations

import fnmatch
import os
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, cast

from postroom.errors import PipelineFailure, is_environment_error
from postroom.message import CHUNK_SIZE, Body, Message
from postroom.pipelines.components.contract import Decoder
from postroom.pipelines.documents.body_file import BodyFile
from postroom.pipelines.documents.spool import spool

#: As much as BizTalk's own pipelines take in (LRG-01).
MAX_SIZE = 4 << 30
#: More than any honest file of text shrinks by; a bomb reaches a thousand.
MAX_RATIO = 200
#: Below this size nobody is harmed by any ratio.
_HARMLESS = 16 << 20

#: zipfile reads other methods, too, but decompresses a piece of them as a whole: 400 bytes of bzip2 are 300 MB.
_IN_PIECES = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
#: What the directory of an archive may have for each file.
_ENTRY_SIZE = 1 << 10

_AGAIN = "Send the file again; it may have been cut short on its way."


class _Expanding(Decoder):
    #: Limits on what comes out: bytes, and how many times as large as what went in.
    max_size: int = MAX_SIZE
    max_ratio: int = MAX_RATIO

    def problems(self) -> list[str]:
        return [f"{name} is {value}, but must be at least 1." for name, value in self._limits if value < 1]

    @property
    def _limits(self) -> list[tuple[str, int]]:
        return [("max_size", self.max_size), ("max_ratio", self.max_ratio)]

    def _bounded(self, pieces: Iterator[bytes], compressed: int) -> Iterator[bytes]:
        size = 0
        for piece in pieces:
            size += len(piece)
            if size > max(_HARMLESS, compressed * self.max_ratio):
                raise PipelineFailure(
                    f"The content grows to more than {self.max_ratio} times its size.",
                    why=f"{compressed:,} bytes came in, and more than {size:,} would come out: a decompression bomb.",
                    hint="If it is meant to be so, raise max_ratio of the component.",
                )
            yield piece


class Gzip(_Expanding):
    """Decompresses gzip, also where it is several members one after the other."""

    def decode(self, message: Message) -> Body:
        assert message.body is not None
        body = message.body.body
        return spool(self._bounded(_gunzip(body), body.size), max_size=self.max_size)


def _gunzip(body: Body) -> Iterator[bytes]:
    member = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    fresh, read = True, 0
    for chunk in body.chunks():
        data = chunk
        while data:
            if member.eof:
                if not data.strip(b"\0"):  # some writers pad the file
                    break
                member, fresh = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16), True
            try:
                piece = member.decompress(data, CHUNK_SIZE)
            except zlib.error as error:
                raise PipelineFailure(
                    f"The content is not gzip, or damaged, after {read:,} bytes.", why=f"{error}.", hint=_AGAIN
                ) from None
            fresh = False
            data = member.unused_data if member.eof else member.unconsumed_tail
            if piece:
                yield piece
        read += len(chunk)
    if fresh or not member.eof:
        raise PipelineFailure(
            "The gzip content is cut short." if read else "The content is empty, which is no gzip.",
            why=f"Its {read:,} bytes do not reach the end of the compressed data.",
            hint=_AGAIN,
        )


class Zip(_Expanding):
    """Takes one file out of a zip archive: the only one, or the only one whose name is like ``entry`` (``*.xml``).

    ``password`` is the name of an environment variable, where the pipelines run, that has the archive's password. Only
    the traditional encryption of archives can be read, not AES.
    """

    entry: str = "*"
    password: str | None = None
    max_entries: int = 1_000

    @property
    def _limits(self) -> list[tuple[str, int]]:
        return [*super()._limits, ("max_entries", self.max_entries)]

    def decode(self, message: Message) -> Body:
        assert message.body is not None
        body = message.body.body
        try:
            with zipfile.ZipFile(cast(IO[bytes], _Archive(body, max_entries=self.max_entries))) as archive:
                entry = self._chosen(archive)
                if entry.compress_type not in _IN_PIECES:
                    raise _cannot_be_read(f"Its method is {entry.compress_type}, not 0 (stored) or 8 (deflated).")
                with archive.open(entry, pwd=self._password(entry)) as file:
                    pieces = iter(lambda: file.read(CHUNK_SIZE), b"")
                    # The sizes in the directory are what the sender says they are: only what comes out counts, and
                    # what has come in.
                    compressed = max(min(entry.compress_size, body.size), 1)
                    return spool(self._bounded(pieces, compressed), max_size=self.max_size)
        except PipelineFailure:
            raise
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError) as error:
            if is_environment_error(error):
                raise
            why = f"{str(error) or 'It ends too early'}."
            raise PipelineFailure("The content is not a zip archive, or damaged.", why=why, hint=_AGAIN) from None
        except NotImplementedError as error:  # what zipfile raises for ways that it does not know
            raise _cannot_be_read(f"{error}.") from None
        except RuntimeError as error:  # what zipfile raises for passwords
            raise PipelineFailure(
                "The archive cannot be opened with the password of this pipeline.",
                why=f"{error}.",
                hint="Compare the sender's password with the environment variable that the component names.",
            ) from None

    def _chosen(self, archive: zipfile.ZipFile) -> zipfile.ZipInfo:
        entries = [one for one in archive.infolist() if not one.is_dir()]
        if len(entries) > self.max_entries:
            raise _too_many(f"{len(entries):,} files", self.max_entries)
        found = [one for one in entries if fnmatch.fnmatchcase(one.filename, self.entry)]
        if len(found) != 1:
            names = ", ".join(one.filename for one in entries[:10]) or "none"
            raise PipelineFailure(
                f"The archive has {len(found) or 'no'} files like {self.entry!r}; there must be one.",
                why=f"Its files are: {names[:300]}.",
                hint="Send one document an archive, or give the component the name of the one that counts.",
            )
        return found[0]

    def _password(self, entry: zipfile.ZipInfo) -> bytes | None:
        if not entry.flag_bits & 1:
            return None
        password = os.environ.get(self.password or "")
        if not password:
            named = f"The environment variable {self.password} is not set here." if self.password else ""
            raise PipelineFailure(
                "The archive is encrypted, and the pipeline has no password.",
                why=named,
                hint='Name the environment variable that has it: components.Zip(password="ORDERS_ZIP_PASSWORD").',
            )
        return password.encode()


def _cannot_be_read(why: str) -> PipelineFailure:
    return PipelineFailure(
        "The archive is compressed or encrypted in a way that cannot be read.",
        why=why,
        hint="Send it deflated, and encrypted in the traditional way or not at all.",
    )


class _Archive(BodyFile):
    """The directory of an archive is read in one piece, and becomes objects of ten times its size: it has a limit. All
    else is read in small pieces."""

    def __init__(self, body: Body, *, max_entries: int) -> None:
        super().__init__(body)
        self._max_entries = max_entries

    def read(self, size: int = -1, /) -> bytes | None:
        if size > max(CHUNK_SIZE, self._max_entries * _ENTRY_SIZE):
            raise _too_many(f"a directory of {size:,} bytes", self._max_entries)
        return super().read(size)


def _too_many(what: str, max_entries: int) -> PipelineFailure:
    return PipelineFailure(
        f"The archive has {what}.",
        why=f"This pipeline looks at no more than {max_entries:,} files.",
        hint="If it is meant to be so, raise max_entries of the component.",
    )
