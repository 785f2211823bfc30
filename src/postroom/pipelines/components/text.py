"""Decoders for text: base64 and character sets."""

from __future__ import annotations

import base64
import binascii
import codecs
from collections.abc import Iterator
from dataclasses import replace

from postroom.errors import PipelineFailure
from postroom.message import Body, Message
from postroom.pipelines.components.contract import Decoder
from postroom.pipelines.documents.temporary_bodies import spool

_WHITE = b" \t\r\n\v\f"


class Base64(Decoder):
    """Decodes base64. White space is ignored. Any other invalid character is a failure."""

    def decode(self, message: Message) -> Body:
        assert message.body is not None
        body = message.body.body
        return spool(_decode_chunks(body), max_size=body.size)


def _decode_chunks(body: Body) -> Iterator[bytes]:
    pending = b""
    try:
        for chunk in body.chunks():
            pending += chunk.translate(None, _WHITE)
            # The last characters may be padding, so they are decoded last. Padding elsewhere is an error.
            whole = max(0, (len(pending) - 1) // 4 * 4)
            yield base64.b64decode(pending[:whole], validate=True)
            if b"=" in pending[:whole]:
                raise binascii.Error("Something follows the padding")
            pending = pending[whole:]
        yield base64.b64decode(pending, validate=True)
    except binascii.Error as error:
        raise PipelineFailure(
            "The content is not base64.", why=f"{error}.", hint="Send it again as base64, complete and unchanged."
        ) from None


class Charset(Decoder):
    """Converts text from ``source`` to UTF-8, without a byte order mark.

    components.Charset("windows-1252")
    """

    source: str

    def __init__(self, source: str, **settings: object) -> None:
        super().__init__(**{"source": source, **settings})

    def problems(self) -> list[str]:
        return encoding_problems(self.source)

    def decode(self, message: Message) -> Message:
        assert message.body is not None
        body = message.body.body
        # In every text encoding one byte becomes at most four bytes of UTF-8.
        changed = message.with_body(spool(self._convert_chunks(body), max_size=4 * body.size))
        parts = [
            replace(part, charset="utf-8") if part.name == changed.body_part_name else part for part in changed.parts
        ]
        return replace(changed, parts=tuple(parts))

    def _convert_chunks(self, body: Body) -> Iterator[bytes]:
        decoder = codecs.getincrementaldecoder(self.source)()
        read, first = 0, True
        try:
            for chunk in body.chunks():
                text = decoder.decode(chunk)
                if first and text:
                    text, first = text.removeprefix("\ufeff"), False
                read += len(chunk)
                yield text.encode()
            yield decoder.decode(b"", final=True).encode()
        except UnicodeError as error:
            reason = error.reason if isinstance(error, UnicodeDecodeError) else str(error)
            raise PipelineFailure(
                f"The content is not {self.source}.",
                why=f"In the bytes after {read:,}: {reason}.",
                hint="Send it in the encoding of the pipeline, or correct the encoding of the pipeline.",
            ) from None


def encoding_problems(encoding: str) -> list[str]:
    """Describe what is wrong with the name of a text encoding."""
    try:
        is_text = codecs.lookup(encoding)._is_text_encoding
    except (LookupError, ValueError):
        is_text = False
    return [] if is_text else [f"{encoding!r} is not a known text encoding."]
