"""The receive pipelines for JSON: one document or an array of documents, and one document per line.

pipelines.Json(promote={Region: "region", Total: "totals.net"}, message_type="order")
pipelines.Json(promote={Region: "region"}, split="orders", recoverable=True)
pipelines.JsonLines(promote={Region: "region"}, recoverable=False)
"""

from __future__ import annotations

from typing import ClassVar, Literal

from postroom.pipelines.definition import (
    BAD_DOCUMENTS,
    Disassemble,
    Format,
    Promoting,
    limit_problems,
    strip_byte_order_mark,
    type_problems,
)
from postroom.pipelines.json import path as json_path

#: The starts of a JSON value.
_STARTS = (*(bytes([start]) for start in b'{["-0123456789'), b"true", b"false", b"null")


class Json(Promoting, Format):
    """Reads an interchange that is one JSON document, or with ``split`` an envelope around an array of documents.

    ``promote`` maps properties to dotted paths (``customer.address.city``; a dot inside a key is written ``\\.``).
    Types are strict: a str property takes a JSON string, an int property a whole number, a Decimal property a
    number or a string (its digits exactly), a float property a number, a bool property true or false, a datetime
    property an ISO 8601 string. An absent or null value is not promoted; anything else fails the document. If a key
    occurs twice, its last value is used. ``message_type`` is promoted as BTS.MessageType. An empty interchange is a
    failure.

    Without ``split`` the body is the interchange, byte for byte. With it, each element of the array at that path
    (``split="orders"``, ``split="batch.orders"``; ``split="$"``: the interchange is the array) becomes a message, byte
    for byte, and the paths of ``promote`` start at that element. An empty array yields no messages. It is a failure if
    there is no array at the path, or if the interchange is not JSON. All documents or none are published, unless it is
    ``recoverable``: then a document with a wrong value is suspended alone.
    """

    kind: Literal["json"] = "json"
    content_type: ClassVar[str] = "application/json"
    is_harmless: ClassVar[bool] = True
    message_type: str | None = None
    split: str | None = None
    recoverable: bool = False
    bad_documents: int | None = BAD_DOCUMENTS

    def problems(self) -> list[str]:
        found = super().problems() + json_path.problems(self.promotions) + type_problems(self.message_type)
        found += json_path.split_problems(self.split) + limit_problems(self.bad_documents)
        if self.recoverable and self.split is None:
            found.append("recoverable is for interchanges with several documents; set split to the path of the array.")
        return found

    def target_problems(self, target: str) -> list[str]:
        return [] if self.split is None else ["it has a split; a map returns one message."]

    def can_read(self, head: bytes) -> bool:
        start = strip_byte_order_mark(head)
        if self.split is None:
            return _is_json(start)
        return start.startswith(b"[" if self.split == json_path.ROOT else b"{")

    def make_resumed_reader(self, *, received: bool) -> Json:
        return self.model_copy(update={"split": None})  # the document has no envelope any more

    def _load_disassembler(self) -> Disassemble:
        from postroom.pipelines.json.disassembler import JsonDisassembler

        return JsonDisassembler(self.promotions, self.message_type, split=self.split).read_interchange


class JsonLines(Promoting, Format):
    """Reads one JSON document per line. Each line, without its line end, is the body of a message.

    It promotes as ``Json`` does. Blank lines, a byte order mark and the CR of a CR LF are ignored. An interchange
    without documents yields no messages and is not a failure. A bad line is suspended alone. If ``recoverable`` is
    false, it fails the interchange.
    """

    kind: Literal["json-lines"] = "json-lines"
    content_type: ClassVar[str] = "application/json"
    is_harmless: ClassVar[bool] = True
    message_type: str | None = None
    recoverable: bool = True
    bad_documents: int | None = BAD_DOCUMENTS

    def problems(self) -> list[str]:
        found = super().problems() + json_path.problems(self.promotions) + type_problems(self.message_type)
        return found + limit_problems(self.bad_documents)

    def can_read(self, head: bytes) -> bool:
        start = strip_byte_order_mark(head)
        return _is_json(start) or not start  # an interchange without lines is valid

    def make_resumed_reader(self, *, received: bool) -> Format:
        # A document that was read before is one document, on any number of lines.
        return self if received else Json(promote=self.promote, message_type=self.message_type)

    def _load_disassembler(self) -> Disassemble:
        from postroom.pipelines.json.disassembler import JsonDisassembler

        return JsonDisassembler(self.promotions, self.message_type).read_lines


def _is_json(start: bytes) -> bool:
    return start.startswith(_STARTS)
