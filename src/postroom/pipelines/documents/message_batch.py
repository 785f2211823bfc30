"""A batch of documents as components see it: Arrow columns, and each row as a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from postroom.errors import MessageFailure
from postroom.message import Body, Bytes, Context, Message, Part
from postroom.namespaces import is_distinguished
from postroom.pipelines.documents.disassembled_batch import BadDocument, Decoded, Form
from postroom.pipelines.documents.spool import cut
from postroom.system_properties import BTS

if TYPE_CHECKING:
    from lxml import etree

_OWN_COLUMNS = ("number", "body", "offset", "length", "message_type", "content_type")


class MessageBatch:
    """``table`` has the columns of ``Disassembled.messages``: number, body (null if it is large), message_type, and one
    per promoted property, named by its key (``Region.key``)."""

    def __init__(
        self, table: pa.RecordBatch | pa.Table, decoded: Decoded, roots: Sequence[etree._Element] = ()
    ) -> None:
        self.table = table
        self._decoded = decoded
        #: Not for components of others: who changes a tree changes what the rest of the pipeline sees.
        self._roots = roots

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Message]:
        return map(self.message, range(len(self)))

    def body(self, row: int) -> Body:
        content = self._bodies[row]
        if content is not None:
            return Bytes(content)
        return cut(self._decoded.body, self.table["offset"][row].as_py(), self.table["length"][row].as_py())

    def message(self, row: int) -> Message:
        """The document as it would be published, but for what the receive location adds."""
        own = self._own(row)
        promoted = {key: value for key, value in own.items() if not is_distinguished(key)}
        distinguished = {key: value for key, value in own.items() if is_distinguished(key)}
        promoted[BTS.InterchangeSequenceNumber.key] = self._columns["number"][row]
        shared = self._decoded.context
        written = {key: value for key, value in shared.written.items() if key not in promoted} | distinguished
        name = self._decoded.body_name
        part = Part(name=name, body=self.body(row), content_type=self._decoded.content_type)
        return Message(
            context=Context({**shared.promoted, **promoted}, written, shared.predicates),
            parts=self._decoded.around(part),
            body_part_name=name,
        )

    def refused(self, row: int, failure: MessageFailure) -> BadDocument:
        """The document as one that is suspended alone, after it was disassembled, or mapped even."""
        mapped = self._columns["content_type"][row] if "content_type" in self._columns else None
        return BadDocument(
            number=self._columns["number"][row],
            body=b"".join(self.body(row).chunks()),
            failure=failure,
            form=Form.DISASSEMBLED if mapped is None else Form.MAPPED,
            values=self._own(row),
            content_type=mapped or self._decoded.content_type,
        )

    def _own(self, row: int) -> dict[str, Any]:
        """What it was given, by property key."""
        own: dict[str, Any] = {
            key: plain(values[row])
            for key, values in self._columns.items()
            if key not in _OWN_COLUMNS and values[row] is not None
        }
        if self._columns["message_type"][row] is not None:
            own[BTS.MessageType.key] = self._columns["message_type"][row]
        return own

    @cached_property
    def _bodies(self) -> list[bytes | None]:
        return list(self.table["body"].to_pylist())

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        return dict(self.table.to_pydict())


def plain(value: Any) -> Any:
    """A Decimal without the zeros that an Arrow column of fixed scale adds."""
    return Decimal(f"{value:f}".rstrip("0").rstrip(".")) if isinstance(value, Decimal) else value
