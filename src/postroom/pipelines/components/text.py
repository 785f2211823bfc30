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
        hint = "Send it in the encoding of the pipeline, or correct the encoding of the pipeline."
        converted = convert_text(body, self.source, "utf-8", hint=hint)
        changed = message.with_body(spool(converted, max_size=4 * body.size))
        parts = [
            replace(part, charset="utf-8") if part.name == changed.body_part_name else part for part in changed.parts
        ]
        return replace(changed, parts=tuple(parts))


def convert_text(body: Body, source: str, target: str, *, hint: str) -> Iterator[bytes]:
    """Yield text in another encoding, without a byte order mark. ``hint`` is for a body that is not in ``source``."""
    decoder = codecs.getincrementaldecoder(source)()
    encoder = codecs.getincrementalencoder(target)()
    read, first = 0, True
    try:
        for chunk in body.chunks():
            text = decoder.decode(chunk)
            if first and text:
                text, first = text.removeprefix("\ufeff"), False
            yield encoder.encode(text)
            read += len(chunk)
        yield encoder.encode(decoder.decode(b"", final=True), final=True)
    except UnicodeEncodeError as error:
        character = error.object[error.start]
        raise PipelineFailure(
            f"The content has the character U+{ord(character):04X}, which {target} does not have.",
            why=f"It is in the bytes after {read:,}.",
            hint="Send it in another encoding, or remove the character in a map; then resume.",
        ) from None
    except UnicodeError as error:
        reason = error.reason if isinstance(error, UnicodeDecodeError) else str(error)
        raise PipelineFailure(
            f"The content is not {source}.", why=f"In the bytes after {read:,}: {reason}.", hint=hint
        ) from None


def encoding_problems(encoding: str) -> list[str]:
    """Describe what is wrong with the name of a text encoding."""
    try:
        is_text = codecs.lookup(encoding)._is_text_encoding
    except (LookupError, ValueError):
        is_text = False
    return [] if is_text else [f"{encoding!r} is not a known text encoding."]
