"""The receive pipeline of a Spark reader: rows of a table become messages.

pipelines.Rows(promote={Region: "region", Total: "total"})
pipelines.Rows(promote={Topic: "topic"}, column="value")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

from postroom.pipelines.definition import Definition, Promoting, type_problems
from postroom.pipelines.rows.source import RowSource
from postroom.values import Value

if TYPE_CHECKING:
    from postroom.message import Body, Context
    from postroom.pipelines.documents.disassembled_batch import BatchSize, DisassembledBatch

_CONTENT_TYPES = {"json": "application/json", "csv": "text/csv", None: "application/octet-stream"}


class Rows(Promoting):
    """Publishes one message per row. Only for ``adapters.SparkReader``, which defines the columns.

    ``promote`` maps properties to columns without converting the values: a str property needs a string column, an int
    property an integer column of any width, a Decimal property a decimal or integer column, a float property a float or
    double column, a bool property a boolean column, a datetime property a timestamp column. A null is not promoted. A
    row with a value that the property cannot have (text of more than 256 characters, a float that is NaN) is bad.

    The body of a message is the row: ``body="json"`` as an object with a key for every column, ``body="csv"`` as a line
    without its line end; or the value of one ``column``, byte for byte. The default is the line of a text file, the
    content of a binary file, the value of a Kafka record, and JSON for everything else.

    A bad row is suspended alone, in its original form. Bulk files are always recoverable. ``columns`` and ``source``
    are those of the reader.
    """

    kind: Literal["rows"] = "rows"
    content_type: ClassVar[str] = "application/json"
    body: Literal["json", "csv"] | None = None
    column: str | None = None
    message_type: str | None = None
    recoverable: bool = True
    #: The reader has a limit for the rows of a file. This pipeline itself reads only a bad row that is resumed.
    bad_documents: ClassVar[int | None] = None
    columns: tuple[str, ...] = ()
    source: RowSource | None = None

    @property
    def body_content_type(self) -> str:
        """The media type of the bodies."""
        return _CONTENT_TYPES[self.body]

    def problems(self) -> list[str]:
        found = super().problems() + type_problems(self.message_type)
        if self.body is not None and self.column is not None:
            found.append(f"body is {self.body!r} and column is {self.column!r}, but a message has one body.")
        if not self.recoverable:
            found.append(
                "recoverable is False, but bulk files are always recoverable: rows are published while"
                " others are still being read."
            )
        return found

    @property
    def hidden_columns(self) -> frozenset[str]:
        """The columns whose values are not shown in failures (SEC-14)."""
        return frozenset(path for prop, path in self.promotions.entries if prop.sensitive)

    def with_columns(
        self, columns: tuple[str, ...], default_column: str | None, source: RowSource | None = None
    ) -> Rows:
        """Return a copy with the columns of the reader, and the source of its rows if they are text.
        ``default_column`` is the body if the definition has none."""
        column = self.column
        if self.body is None and column is None:
            column = default_column
        body = self.body or (None if column is not None else "json")
        return self.model_copy(update={"body": body, "column": column, "columns": columns, "source": source})

    @property
    def can_correct(self) -> bool:
        from postroom.pipelines.rows.document import can_correct

        return can_correct(self)

    def make_resumed_reader(self, *, received: bool) -> Definition | None:
        from postroom.pipelines.rows.document import CorrectedRow, row_format

        if received and self.source is not None:
            return CorrectedRow(promote=self.promote, rows=self)
        return row_format(self) or (CorrectedRow(promote=self.promote, rows=self) if received else None)

    def select_external_values(self, body: bytes, values: Mapping[str, Value]) -> Mapping[str, Value]:
        from postroom.pipelines.rows.document import row_format

        return values if row_format(self) is None else {}

    def _read_batches(self, body: Body, context: Context, size: BatchSize) -> Iterator[DisassembledBatch]:
        from postroom.pipelines.rows.document import disassemble

        return disassemble(self, body, size)
