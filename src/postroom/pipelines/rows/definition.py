"""Rows of a table as messages: the receive pipeline behind a Spark reader.

pipelines.Rows(promote={Region: "region", Total: "total"})
pipelines.Rows(promote={Topic: "topic"}, column="value")
"""

from __future__ import annotations

from typing import ClassVar, Literal

from postroom.pipelines.definitions import Promoting, type_problems

_CONTENT_TYPES = {"json": "application/json", "csv": "text/csv", None: "application/octet-stream"}


class Rows(Promoting):
    """One message a row. Behind ``adapters.SparkReader`` only, which says which columns there are.

    ``promote`` maps properties to columns, and takes their values as they are: a str property a string column, an int
    property an integer column of any width, a Decimal property a decimal or integer column, a float property a float or
    double column, a bool property a boolean column, a datetime property a timestamp column. A null is not promoted. A
    row whose value a property cannot have (text of more than 256 characters, a float that is no number) is bad.

    The body of a message is the row: ``body="json"`` as an object with a key for every column, ``body="csv"`` as a line
    without its line end; or what is in one ``column``, byte for byte. Left out, it is the line of a text file, the
    content of a binary file, the value of a Kafka record, and JSON for everything else.

    A bad row is suspended alone, as it came; bulk is recoverable only.
    """

    kind: Literal["rows"] = "rows"
    content_type: ClassVar[str] = "application/json"
    body: Literal["json", "csv"] | None = None
    column: str | None = None
    message_type: str | None = None
    recoverable: bool = True
    #: The reader has a limit for the rows of a file. Through here comes one that was bad and is resumed.
    bad_documents: ClassVar[int | None] = None
    columns: tuple[str, ...] = ()

    @property
    def body_content_type(self) -> str:
        """The media type of the bodies."""
        return _CONTENT_TYPES[self.body]

    def problems(self) -> list[str]:
        found = super().problems() + type_problems(self.message_type)
        if self.body is not None and self.column is not None:
            found.append(f"body is {self.body!r} and column is {self.column!r}: a message has one body.")
        if not self.recoverable:
            found.append(
                "recoverable is False, but some rows are published while others are still being read, in many places at"
                " once: bulk is recoverable only."
            )
        return found

    def settled(self, columns: tuple[str, ...], default_column: str | None) -> Rows:
        """The same, knowing what its reader yields: the columns, and which of them is the body unless it says so."""
        column = self.column
        if self.body is None and column is None:
            column = default_column
        body = self.body or (None if column is not None else "json")
        return self.model_copy(update={"body": body, "column": column, "columns": columns})
