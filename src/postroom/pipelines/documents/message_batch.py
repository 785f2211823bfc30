"""A batch of documents as components see it: Arrow columns, and each row as a message."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from postroom.errors import MessageFailure
from postroom.message import Body, Bytes, Context, Message, Part
from postroom.pipelines.documents.disassembled_batch import BadDocument, DecodedInterchange, Form, arrow_schema
from postroom.properties import is_distinguished
from postroom.system_properties import BTS
from postroom.temporary_bodies import slice_body

if TYPE_CHECKING:
    from lxml import etree

_FIXED_COLUMNS = ("number", "body", "offset", "length", "message_type", "content_type")


class MessageBatch:
    """A batch of messages. ``table`` has the columns of ``DisassembledBatch.messages``: number, body (null if it is
    large), message_type, and one column per promoted property, named by its key (``Region.key``)."""

    def __init__(
        self, table: pa.RecordBatch | pa.Table, decoded: DecodedInterchange, roots: Sequence[etree._Element] = ()
    ) -> None:
        self.table = table
        self._decoded = decoded
        #: Only for Postroom's own components: a change of a tree would be visible to the rest of the pipeline.
        self._roots = roots

    @classmethod
    def of(cls, message: Message) -> MessageBatch:
        """Return a batch with this message, which has a body."""
        assert message.body is not None
        promoted = {prop.key: prop for prop in message.context if message.context.is_promoted(prop)}
        message_type = promoted.pop(BTS.MessageType.key, None)
        row = {
            **{key: message.context[prop] for key, prop in promoted.items()},
            "number": 1,
            "offset": 0,
            "length": message.body.body.size,
            "message_type": None if message_type is None else message.context[BTS.MessageType],
        }
        table = pa.RecordBatch.from_pylist([row], schema=arrow_schema(tuple(promoted.values())))
        decoded = DecodedInterchange.of(message, content_type=message.body.content_type, disassembler=1)
        return cls(table, decoded)

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def __iter__(self) -> Iterator[Message]:
        return map(self.message, range(len(self)))

    def body(self, row: int) -> Body:
        content = self._bodies[row]
        if content is not None:
            return Bytes(content)
        return slice_body(self._decoded.body, self.table["offset"][row].as_py(), self.table["length"][row].as_py())

    def message(self, row: int) -> Message:
        """Return the document as it would be published, without the properties that the receive location adds."""
        values = self._values(row)
        promoted = {key: value for key, value in values.items() if not is_distinguished(key)}
        distinguished = {key: value for key, value in values.items() if is_distinguished(key)}
        promoted[BTS.InterchangeSequenceNumber.key] = self._columns["number"][row]
        shared = self._decoded.context
        written = {key: value for key, value in shared.written.items() if key not in promoted} | distinguished
        name = self._decoded.body_name
        part = Part(name=name, body=self.body(row), content_type=self._decoded.content_type)
        return Message(
            context=Context({**shared.promoted, **promoted}, written, shared.predicates),
            parts=self._decoded.with_body_part(part),
            body_part_name=name,
        )

    def bad_document(self, row: int, failure: MessageFailure) -> BadDocument:
        """Return the document as one to suspend alone, in the form that it has reached: disassembled or mapped."""
        mapped = self._columns["content_type"][row] if "content_type" in self._columns else None
        return BadDocument(
            number=self._columns["number"][row],
            body=b"".join(self.body(row).chunks()),
            failure=failure,
            form=Form.DISASSEMBLED if mapped is None else Form.MAPPED,
            values=self._values(row),
            content_type=mapped or self._decoded.content_type,
        )

    def _values(self, row: int) -> dict[str, Any]:
        """Return what was promoted to a document, by property key."""
        values: dict[str, Any] = {
            key: strip_zeros(column[row])
            for key, column in self._columns.items()
            if key not in _FIXED_COLUMNS and column[row] is not None
        }
        if self._columns["message_type"][row] is not None:
            values[BTS.MessageType.key] = self._columns["message_type"][row]
        return values

    @cached_property
    def _bodies(self) -> list[bytes | None]:
        return list(self.table["body"].to_pylist())

    @cached_property
    def _columns(self) -> dict[str, list[Any]]:
        return dict(self.table.to_pydict())


def strip_zeros(value: Any) -> Any:
    """Return a Decimal without the zeros that an Arrow column of fixed scale adds, and any other value unchanged."""
    return Decimal(f"{value:f}".rstrip("0").rstrip(".")) if isinstance(value, Decimal) else value
