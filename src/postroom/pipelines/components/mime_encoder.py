"""An encoder for MIME: the parts of a message become the parts of a multipart message (LRG-08)."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator
from email.utils import encode_rfc2231

from postroom.errors import PipelineFailure
from postroom.message import BODY_NAME, Bytes, Message, Part
from postroom.pipelines.components.contract import Encoder, get_body, replace_body
from postroom.pipelines.components.mime import MAX_SIZE

#: The media type of content that starts with MIME headers.
MIME_TYPE = "message/rfc822"

_MEDIA_TYPE = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+/[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_CHARSET = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_QUOTED_NAME = re.compile(r"[ !#-\[\]-~]*")


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
    lines = [
        "MIME-Version: 1.0",
        f'Content-Type: multipart/mixed; boundary="{boundary}"',
        "",
    ]
    for part in message.parts:
        lines += [f"--{boundary}", *_headers(part, is_body=part is body), "", *_content_lines(part)]
    return "\r\n".join([*lines, f"--{boundary}--", ""]).encode("ascii")


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
        yield f"Content-Disposition: {disposition}; {_format_filename(part.name)}"


def _format_filename(name: str) -> str:
    if _QUOTED_NAME.fullmatch(name):
        return f'filename="{name}"'
    return f"filename*={encode_rfc2231(name, 'utf-8')}"


def _content_lines(part: Part) -> Iterator[str]:
    encoded = base64.b64encode(part.data).decode()
    for start in range(0, len(encoded), 76):
        yield encoded[start : start + 76]
