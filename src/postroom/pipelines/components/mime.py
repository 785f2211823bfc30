"""MIME: the parts of a multipart message become parts of the message, and the other way round (LRG-08)."""

from __future__ import annotations

import base64
import email.errors
import email.message
import email.parser
import email.policy
import fnmatch
import re
from collections.abc import Iterator
from email.utils import encode_rfc2231

from postroom.errors import PipelineFailure, format_count
from postroom.message import BODY_NAME, MAX_PARTS, Bytes, Message, Part
from postroom.pipelines.components.contract import Decoder, Encoder, get_body, replace_body
from postroom.system_properties import HTTP

#: The message is buffered in memory several times.
MAX_SIZE = 64 << 20

#: The content types whose headers may come from the HTTP request instead of the content.
_TYPES_IN_REQUEST = ("multipart/", "application/pkcs7-mime", "application/x-pkcs7-mime")
_AGAIN = "Send the complete message again."
_MAX_NAME = 200
_CONTROL_CHARACTERS = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")
#: Defects that mail programs commonly produce.
_TOLERATED = (email.errors.MissingHeaderBodySeparatorDefect, email.errors.HeaderMissingRequiredValue)
#: The media type of content that starts with MIME headers.
MIME_TYPE = "message/rfc822"

_MEDIA_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHARSET = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_QUOTED_NAME = re.compile(r"[ !#-\[\]-~]*")


class Mime(Decoder):
    """Divides a multipart message into its parts. One becomes the body part, the others keep their order.

    The headers are at the start of the content, as in a mail, or come from the HTTP request. The body part is the one
    whose content type matches ``body_type`` (``application/xml``), or the one with the number ``body_index``, from 1.
    Without either it is the part with the Content-Description "body", else the part that ``start`` names, else the
    first. Nested parts are divided too. The name of a part is its file name, its Content-ID or its number. A body part
    without the first two is named ``body``. Content that is not MIME fails, unless ``allow_non_mime`` is set.
    """

    body_type: str | None = None
    body_index: int | None = None
    allow_non_mime: bool = False
    max_size: int = MAX_SIZE
    max_parts: int = 100
    max_nesting: int = 8

    def problems(self) -> list[str]:
        limits = {"max_size": self.max_size, "max_parts": self.max_parts, "max_nesting": self.max_nesting}
        found = [f"{name} is {value}, but must be at least 1." for name, value in limits.items() if value < 1]
        if self.max_parts > MAX_PARTS:
            found.append(f"max_parts is {self.max_parts}, but the maximum is {MAX_PARTS}.")
        if self.body_index is not None and self.body_index < 1:
            found.append(f"body_index is {self.body_index}, but part numbers start at 1.")
        if self.body_index is not None and self.body_type is not None:
            found.append("Both body_type and body_index are set; use one of them.")
        return found

    def decode(self, message: Message) -> Message:
        try:
            _, parsed = parse_mime(message, max_size=self.max_size)
        except RecursionError:
            raise self._nesting_failure() from None
        if "MIME-Version" not in parsed and "Content-Type" not in parsed:
            if self.allow_non_mime:
                return message
            raise PipelineFailure(
                "The content is not a MIME message.",
                why="It does not start with headers that include a MIME-Version or a Content-Type.",
                hint="Send it as MIME, or accept other content with allow_non_mime.",
            )
        leaves = list(self._leaves(parsed, 0))
        if len(leaves) > self.max_parts:
            raise PipelineFailure(
                f"The message has {len(leaves):,} parts.",
                why=f"The maximum of this pipeline is {self.max_parts:,}.",
                hint="If the message is valid, raise max_parts of the component.",
            )
        body = self._find_body(parsed, leaves)
        names = _name_parts(leaves, body)
        parts = tuple(
            Part(
                name=name,
                body=Bytes(_decode_content(leaf)),
                content_type=leaf.get_content_type(),
                charset=_get_charset(leaf),
            )
            for name, leaf in zip(names, leaves, strict=True)
        )
        return Message(context=message.context, parts=parts, body_part_name=names[body])

    def _leaves(self, node: email.message.Message, depth: int) -> Iterator[email.message.Message]:
        """Yield the parts with content, in order."""
        for defect in node.defects:
            if not isinstance(defect, _TOLERATED):
                name = type(defect).__name__.removesuffix("Defect")
                raise PipelineFailure("The MIME message is damaged.", why=f"{name}.", hint=_AGAIN)
        if node.get_content_maintype() != "multipart":
            yield node
            return
        if depth >= self.max_nesting:
            raise self._nesting_failure()
        inner = node.get_payload()
        if not isinstance(inner, list) or not inner:
            raise PipelineFailure("The MIME message has no parts.", why="No part can be the body.", hint=_AGAIN)
        for part in inner:
            assert isinstance(part, email.message.Message)
            yield from self._leaves(part, depth + 1)

    def _nesting_failure(self) -> PipelineFailure:
        return PipelineFailure(
            f"The message has more than {self.max_nesting} levels of nested parts.",
            why="This is the maximum of this pipeline. It protects against malicious messages.",
            hint="If the message is valid, raise max_nesting of the component.",
        )

    def _find_body(self, parsed: email.message.Message, leaves: list[email.message.Message]) -> int:
        if self.body_index is not None:
            if self.body_index <= len(leaves):
                return self.body_index - 1
            raise _no_body_failure(
                f"It has {format_count(len(leaves), 'part')}, and body_index is {self.body_index}.", leaves
            )
        if self.body_type is not None:
            for number, leaf in enumerate(leaves):
                if fnmatch.fnmatchcase(leaf.get_content_type(), self.body_type.lower()):
                    return number
            raise _no_body_failure(f"No part has a content type that matches {self.body_type}.", leaves)
        start = parsed.get_param("start")
        for number, leaf in enumerate(leaves):
            if str(leaf.get("Content-Description", "")).strip().lower() == "body":
                return number
        for number, leaf in enumerate(leaves):
            if start is not None and leaf.get("Content-ID") is not None and str(leaf["Content-ID"]).strip() == start:
                return number
        return 0


def parse_mime(message: Message, *, max_size: int) -> tuple[bytes, email.message.Message]:
    """Return the message with its headers, which may come from the HTTP request, and its parsed form."""
    assert message.body is not None
    if message.body.body.size > max_size:
        raise PipelineFailure(
            f"The MIME message has {message.body.body.size:,} bytes.",
            why=f"The maximum of this pipeline is {max_size:,}, because the message is buffered in memory.",
            hint="If the message is valid, raise max_size of the component.",
        )
    content = message.data
    transport = message.context.get(HTTP.ContentType)
    if (
        isinstance(transport, str)
        and transport.lower().startswith(_TYPES_IN_REQUEST)
        and not _CONTROL_CHARACTERS.search(transport)
    ):
        content = f"MIME-Version: 1.0\r\nContent-Type: {transport}\r\n\r\n".encode() + content
    return content, email.parser.BytesParser(policy=email.policy.compat32).parsebytes(content)


def _decode_content(leaf: email.message.Message) -> bytes:
    if leaf.is_multipart():  # the part is a message itself
        inner = leaf.get_payload(0)
        assert isinstance(inner, email.message.Message)
        try:
            return inner.as_bytes()
        except Exception as error:  # the email package reads damaged headers that it cannot write
            raise PipelineFailure(
                "A part of the MIME message cannot be decoded.", why=f"{type(error).__name__}.", hint=_AGAIN
            ) from None
    content = leaf.get_payload(decode=True)
    damaged = [defect for defect in leaf.defects if not isinstance(defect, _TOLERATED)]
    if not isinstance(content, bytes) or damaged:
        why = type(damaged[0]).__name__.removesuffix("Defect") if damaged else "It has no content"
        raise PipelineFailure("A part of the MIME message cannot be decoded.", why=f"{why}.", hint=_AGAIN)
    return content


def _get_charset(leaf: email.message.Message) -> str | None:
    charset = leaf.get_content_charset()
    return None if charset is None or _CONTROL_CHARACTERS.search(charset) else charset


def _name_parts(leaves: list[email.message.Message], body: int) -> list[str]:
    """Return a unique name for each part."""
    names: list[str] = []
    for number, leaf in enumerate(leaves, 1):
        given = leaf.get_filename() or str(leaf.get("Content-ID", "")).strip(" <>\t\r\n")
        name = _CONTROL_CHARACTERS.sub("_", given)[:_MAX_NAME] or (
            BODY_NAME if number == body + 1 else f"part-{number}"
        )
        while name in names:
            name = f"{name}-{number}"
        names.append(name)
    return names


def _no_body_failure(why: str, leaves: list[email.message.Message]) -> PipelineFailure:
    types = ", ".join(leaf.get_content_type() for leaf in leaves[:10])
    return PipelineFailure(
        "The MIME message does not have the expected body part.",
        why=f"{why} Its parts are: {types[:300]}.",
        hint="Send it with this part, or change body_type or body_index of the component.",
    )


class MimeEncoder(Encoder):
    """Writes a multipart message with all parts of the message, each in base64, and its headers at the start.

    The Content-Description of the body part is "body", so that ``Mime`` recognises it. The other parts are attachments
    with their names. The message is built in memory and has at most ``max_size`` bytes before it is encoded.
    """

    max_size: int = MAX_SIZE

    def problems(self) -> list[str]:
        return size_problems(self.max_size)

    def encode(self, message: Message) -> Message:
        return replace_content(message, build_mime(message, max_size=self.max_size))


def size_problems(max_size: int) -> list[str]:
    """Describe what is wrong with a maximum size."""
    return [] if max_size >= 1 else [f"max_size is {max_size}, but must be at least 1."]


def replace_content(message: Message, content: bytes) -> Message:
    """Return a message whose only part is its body part, with this MIME content."""
    encoded = replace_body(message, Bytes(content), content_type=MIME_TYPE)
    body = get_body(encoded)
    return Message(context=message.context, parts=(body,), body_part_name=body.name)


def build_mime(message: Message, *, max_size: int) -> bytes:
    """Return a MIME entity with the parts of a message, with its headers. The same message has the same content."""
    body = get_body(message)
    size = sum(part.body.size for part in message.parts)
    if size > max_size:
        raise PipelineFailure(
            f"The parts of the message have {size:,} bytes.",
            why=f"The maximum of this pipeline is {max_size:,}, because the MIME message is built in memory.",
            hint="If the message is valid, raise max_size of the component and resume.",
        )
    # The parts are base64, which does not contain the underscores of the boundary.
    boundary = f"_postroom_{message.message_id.hex}"
    pieces = [f'MIME-Version: 1.0\r\nContent-Type: multipart/mixed; boundary="{boundary}"\r\n\r\n'.encode()]
    for part in message.parts:
        lines = [f"--{boundary}", *_headers(part, is_body=part is body), "", ""]
        pieces += ["\r\n".join(lines).encode("ascii"), encode_base64_lines(part.data)]
    return b"".join([*pieces, f"--{boundary}--\r\n".encode()])


def _headers(part: Part, *, is_body: bool) -> Iterator[str]:
    media_type = part.content_type.partition(";")[0].strip()
    if not _MEDIA_TYPE.fullmatch(media_type) or media_type.lower().startswith("multipart/"):
        media_type = "application/octet-stream"
    charset = part.charset if part.charset and _CHARSET.fullmatch(part.charset) else None
    yield f"Content-Type: {media_type}" + (f'; charset="{charset}"' if charset else "")
    yield "Content-Transfer-Encoding: base64"
    if is_body:
        yield "Content-Description: body"
    if not is_body or part.name != BODY_NAME:
        disposition = "inline" if is_body else "attachment"
        filename = f'="{part.name}"' if _QUOTED_NAME.fullmatch(part.name) else f"*={encode_rfc2231(part.name, 'utf-8')}"
        yield f"Content-Disposition: {disposition}; filename{filename}"


def encode_base64_lines(data: bytes) -> bytes:
    """Return base64 in lines of 76 characters that end with CR LF."""
    encoded = base64.b64encode(data)
    return b"".join(encoded[start : start + 76] + b"\r\n" for start in range(0, len(encoded), 76))
