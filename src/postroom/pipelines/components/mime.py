"""A decoder for MIME: the parts of a multipart message, as the sender or a mail server wrote it, become parts of the
message (LRG-08)."""

from __future__ import annotations

import email.errors
import email.message
import email.parser
import email.policy
import fnmatch
import re
from collections.abc import Iterator

from postroom.errors import PipelineFailure
from postroom.message import BODY_NAME, MAX_PARTS, Bytes, Message, Part
from postroom.pipelines.components.contract import Decoder
from postroom.system_properties import HTTP

#: It is held in memory, several times over.
MAX_SIZE = 64 << 20

#: What is read by the headers of a request. Of everything else the content says what it is.
_WRAPPED = ("multipart/", "application/pkcs7-mime", "application/x-pkcs7-mime")
_AGAIN = "Send the message again, whole."
_MAX_NAME = 200
_NOT_IN_A_NAME = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]+")
#: What the library notices and any program that writes mail may do.
_HARMLESS = (email.errors.MissingHeaderBodySeparatorDefect, email.errors.HeaderMissingRequiredValue)


class Mime(Decoder):
    """Takes a multipart message apart: one part becomes the body part, the others stay beside it, in their order.

    The headers stand at the top of the content, as in a mail, or came with it by HTTP. The body part is the one whose
    content type is like ``body_type`` (``application/xml``), or whose number from 1 is ``body_index``; without either,
    the one that is described as the body (Content-Description) or named by ``start``, or else the first. Parts within
    parts are taken apart too. A part is called by its file name, its Content-ID or its number; a body part with neither
    of the first two is called ``body``. What is no MIME is refused, unless ``allow_non_mime``.
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
            found.append(f"max_parts is {self.max_parts}, but may be at most {MAX_PARTS}.")
        if self.body_index is not None and self.body_index < 1:
            found.append(f"body_index is {self.body_index}, but parts are counted from 1.")
        if self.body_index is not None and self.body_type is not None:
            found.append("The body part is chosen by body_type or by body_index, not by both.")
        return found

    def decode(self, message: Message) -> Message:
        try:
            _, parsed = parsed_mime(message, max_size=self.max_size)
        except RecursionError:
            raise self._too_deep() from None
        if not _is_mime(parsed):
            if self.allow_non_mime:
                return message
            raise PipelineFailure(
                "The content is not a MIME message.",
                why="It begins with no headers that have a MIME-Version or a Content-Type.",
                hint="Send it as MIME, or let other content pass with allow_non_mime.",
            )
        leaves = list(self._leaves(parsed, 0))
        if len(leaves) > self.max_parts:
            raise PipelineFailure(
                f"The message has {len(leaves):,} parts.",
                why=f"This pipeline takes no more than {self.max_parts:,}.",
                hint="If it is meant to be so, raise max_parts of the component.",
            )
        body = self._body(parsed, leaves)
        names = _names(leaves, body)
        parts = tuple(
            Part(
                name=name,
                body=Bytes(_content(leaf)),
                content_type=leaf.get_content_type(),
                charset=_charset(leaf),
            )
            for name, leaf in zip(names, leaves, strict=True)
        )
        return Message(context=message.context, parts=parts, body_part_name=names[body])

    def _leaves(self, node: email.message.Message, depth: int) -> Iterator[email.message.Message]:
        """The parts that have content, in their order."""
        for defect in node.defects:
            if not isinstance(defect, _HARMLESS):
                words = type(defect).__name__.removesuffix("Defect")
                raise PipelineFailure("The MIME message is damaged.", why=f"{words}.", hint=_AGAIN)
        if node.get_content_maintype() != "multipart":
            yield node
            return
        if depth >= self.max_nesting:
            raise self._too_deep()
        inner = node.get_payload()
        if not isinstance(inner, list) or not inner:
            raise PipelineFailure("The MIME message has no parts.", why="There is nothing to be its body.", hint=_AGAIN)
        for one in inner:
            assert isinstance(one, email.message.Message)
            yield from self._leaves(one, depth + 1)

    def _too_deep(self) -> PipelineFailure:
        return PipelineFailure(
            f"There are more than {self.max_nesting} parts inside each other.",
            why="That is the limit of this pipeline; what is nested so deep may be made to do harm.",
            hint="If it is meant to be so, raise max_nesting of the component.",
        )

    def _body(self, parsed: email.message.Message, leaves: list[email.message.Message]) -> int:
        if self.body_index is not None:
            if self.body_index <= len(leaves):
                return self.body_index - 1
            raise _no_body(f"It has {len(leaves)} parts, and part {self.body_index} is to be the body.", leaves)
        if self.body_type is not None:
            for number, leaf in enumerate(leaves):
                if fnmatch.fnmatchcase(leaf.get_content_type(), self.body_type.lower()):
                    return number
            raise _no_body(f"No part has a content type like {self.body_type}.", leaves)
        start = parsed.get_param("start")
        for number, leaf in enumerate(leaves):
            if str(leaf.get("Content-Description", "")).strip().lower() == "body":
                return number
        for number, leaf in enumerate(leaves):
            if start is not None and leaf.get("Content-ID") is not None and str(leaf["Content-ID"]).strip() == start:
                return number
        return 0


def parsed_mime(message: Message, *, max_size: int) -> tuple[bytes, email.message.Message]:
    """The whole message with its headers, which may have come by HTTP, and what is in it."""
    assert message.body is not None
    if message.body.body.size > max_size:
        raise PipelineFailure(
            f"The MIME message has {message.body.body.size:,} bytes.",
            why=f"This pipeline takes apart no more than {max_size:,}, because they are held in memory.",
            hint="If it is meant to be so large, raise max_size of the component.",
        )
    content = message.data
    transport = message.context.get(HTTP.ContentType)
    if isinstance(transport, str) and transport.lower().startswith(_WRAPPED) and not _NOT_IN_A_NAME.search(transport):
        content = f"MIME-Version: 1.0\r\nContent-Type: {transport}\r\n\r\n".encode() + content
    return content, email.parser.BytesParser(policy=email.policy.compat32).parsebytes(content)


def _is_mime(parsed: email.message.Message) -> bool:
    return "MIME-Version" in parsed or "Content-Type" in parsed


def _content(leaf: email.message.Message) -> bytes:
    if leaf.is_multipart():  # a whole message that was sent as a part
        inner = leaf.get_payload(0)
        assert isinstance(inner, email.message.Message)
        return inner.as_bytes()
    content = leaf.get_payload(decode=True)
    damaged = [one for one in leaf.defects if not isinstance(one, _HARMLESS)]
    if not isinstance(content, bytes) or damaged:
        why = type(damaged[0]).__name__.removesuffix("Defect") if damaged else "It has no content"
        raise PipelineFailure("A part of the MIME message cannot be decoded.", why=f"{why}.", hint=_AGAIN)
    return content


def _charset(leaf: email.message.Message) -> str | None:
    charset = leaf.get_content_charset()
    return None if charset is None or _NOT_IN_A_NAME.search(charset) else charset


def _names(leaves: list[email.message.Message], body: int) -> list[str]:
    """One for each part, no two alike."""
    names: list[str] = []
    for number, leaf in enumerate(leaves, 1):
        given = leaf.get_filename() or str(leaf.get("Content-ID", "")).strip(" <>\t\r\n")
        name = _NOT_IN_A_NAME.sub("_", given)[:_MAX_NAME] or (BODY_NAME if number == body + 1 else f"part-{number}")
        while name in names:
            name = f"{name}-{number}"
        names.append(name)
    return names


def _no_body(why: str, leaves: list[email.message.Message]) -> PipelineFailure:
    types = ", ".join(leaf.get_content_type() for leaf in leaves[:10])
    return PipelineFailure(
        "The MIME message has no such body part.",
        why=f"{why} Its parts are: {types[:300]}.",
        hint="Send it with that part, or let the component choose another one.",
    )
