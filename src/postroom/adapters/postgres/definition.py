"""The definition of the PostgreSQL adapter for send ports."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from postroom.adapters.contract import SendAdapter, SendDefinition
from postroom.adapters.postgres_server import Names, find_url_problems, format_address
from postroom.adapters.sink.columns import Columns
from postroom.clock import Clock, system_clock
from postroom.secrets.references import Secret

_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")

Format = Literal["json", "csv"]


class Postgres(SendDefinition):
    """Rows of a PostgreSQL table: ``adapters.Postgres("postgresql://db/erp", "orders", mode="upsert", key=["id"])``.

    With the ``format`` ``json`` a message is an object, which is a row, or a list of objects. With ``csv`` its first
    line has the names of the columns. ``fields`` maps columns to fields of the document; without it every field is a
    column of the same name. ``format=None`` does not read the document. ``columns`` are properties of the context that
    become columns, and ``body`` is a column for the whole document. All rows of a message are written in one
    transaction.

    ``mode="upsert"`` updates the row with the same values in the columns ``key``, which need a unique index.
    ``mode="insert"`` always inserts. After a crash it may insert the rows of a message twice, unless ``delivery_id``
    names a column, of the type uuid or text, for an id that is the same in every attempt.

    ``options`` are settings of libpq. The password is a ``postroom.secret(...)``.
    """

    transport_type: ClassVar[str] = "POSTGRESQL"
    max_batch: ClassVar[int] = 100

    kind: Literal["postgres"] = "postgres"
    url: str = Field(kw_only=False)
    table: str = Field(kw_only=False)
    mode: Literal["insert", "upsert"] = "insert"
    key: Names = ()
    format: Format | None = "json"
    fields: Mapping[str, str] | None = None
    columns: Columns = Field(default=(), validate_default=True)
    body: str | None = None
    delivery_id: str | None = None
    options: Mapping[str, str | Secret] = Field(default_factory=dict)

    def problems(self) -> list[str]:
        found = find_url_problems(self.url, self.options)
        if not _TABLE.fullmatch(self.table):
            found.append(f"table {self.table!r} is not the name of a table, such as 'orders' or 'erp.orders'.")
        if self.mode == "upsert" and not self.key:
            found.append("mode is 'upsert', but key is empty; name the columns of a unique index of the table.")
        if self.mode == "insert" and self.key:
            found.append("key is for mode='upsert'; mode='insert' always inserts.")
        if self.mode == "upsert" and self.delivery_id is not None:
            found.append("delivery_id is for mode='insert'; with mode='upsert' a repeated message changes nothing.")
        if self.format is None and self.fields is not None:
            found.append("fields are read from the document, but format is None.")
        if self.format is None and not self.columns and self.body is None:
            found.append("no column is written; set format, columns or body.")
        names = [*self._named_columns]
        found += [f"column {name!r} is declared twice." for name in sorted({n for n in names if names.count(n) > 1})]
        return found

    @property
    def _named_columns(self) -> list[str]:
        own = [name for name in (self.body, self.delivery_id) if name is not None]
        return [*(self.fields or ()), *(column.name for column in self.columns), *own]

    def address(self, home: Path) -> str:
        return f"{format_address(self.url)}#{self.table}"

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        # Import the dependencies of this adapter only when it is used.
        from postroom.adapters.postgres.send import PostgresSender

        return PostgresSender(self)
