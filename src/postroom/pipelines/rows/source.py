"""The text of rows in their file. It is needed to explain and to correct bad rows without Spark."""

from __future__ import annotations

import codecs
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Literal

from pydantic import BaseModel, ConfigDict

#: The options of Spark's readers that change the text of a row, in lower case.
_OPTIONS = [
    "sep",
    "delimiter",
    "quote",
    "escape",
    "nullvalue",
    "emptyvalue",
    "encoding",
    "charset",
    "locale",
    "header",
    "rowtag",
    "ignoreleadingwhitespace",
    "ignoretrailingwhitespace",
    "dateformat",
    "timestampformat",
]


class RowSource(BaseModel):
    """The format of the files that a reader reads, the type of each column, and the options of the reader."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["csv", "json", "xml"]
    columns: tuple[tuple[str, str], ...]
    """The name and the Spark type of each column, in order."""
    options: Mapping[str, str] = {}

    @classmethod
    def create(cls, format: str, columns: Iterable[tuple[str, str]], options: Mapping[str, object]) -> RowSource | None:
        """Return the source of a reader, or None if the rows of its format are not text."""
        if format not in ("csv", "json", "xml"):
            return None
        lower_options = {name.lower(): value for name, value in options.items()}
        known = {
            name: str(value).lower() if isinstance(value, bool) else str(value)
            for name, value in lower_options.items()
            if name in _OPTIONS
        }
        return cls.model_validate({"format": format, "columns": tuple(columns), "options": known})

    @cached_property
    def types(self) -> Mapping[str, str]:
        """The Spark types by column, in the order of the columns."""
        return dict(self.columns)

    @property
    def separator(self) -> str:
        return self.options.get("sep") or self.options.get("delimiter") or ","

    @property
    def has_header(self) -> bool:
        return self.options.get("header") == "true"

    @property
    def encoding(self) -> str:
        """The encoding of suspended rows: that of the file, or UTF-8 if a row alone cannot be written in it."""
        name = self.options.get("encoding") or self.options.get("charset") or "utf-8"
        try:
            name = codecs.lookup(name).name
        except LookupError:
            return "utf-8"
        return "utf-8" if self.format != "csv" or name.startswith(("utf-16", "utf-32", "utf_16", "utf_32")) else name

    def for_messages(self, body: Literal["json", "csv"] | None) -> RowSource:
        """Return the source that describes the messages: JSON, or lines of RFC 4180."""
        return RowSource(format=body or "csv", columns=self.columns, options={"escape": '"'})
