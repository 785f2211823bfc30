"""Text: decoders and encoders for base64 and character sets, with constant memory."""

from __future__ import annotations

import base64
import binascii
import codecs
from collections.abc import Iterator
from dataclasses import replace

from postroom.errors import PipelineFailure
from postroom.message import Body, Message
from postroom.pipelines.components.contract import Decoder, Encoder, get_body, replace_body
from postroom.temporary_bodies import spool

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
