"""The text of rows in their file. It is needed to explain and to correct bad rows without Spark."""

from __future__ import annotations

import codecs
import re
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
#: The characters that Spark's reader trims.
_BLANK = "".join(map(chr, range(33)))


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


def split_line(source: RowSource, line: str) -> list[str | None]:
    """Return the values of a line, None for null. Raise ValueError with the reason if it is not
    well-formed."""
    cells: list[str | None] = []
    position = 0
    while True:
        text, end = _read_cell(source, line, position)
        cells.append(text)
        if end == len(line):
            return cells
        position = end + len(source.separator)


def _read_cell(source: RowSource, line: str, start: int) -> tuple[str | None, int]:
    """Return the value that starts at a position, and the position after it."""
    options, separator = source.options, source.separator
    quote = options.get("quote", '"')
    if options.get("ignoreleadingwhitespace") == "true":
        while start < len(line) and line[start] in _BLANK and not line.startswith(separator, start):
            start += 1
    null = options.get("nullvalue", "")
    if quote and line.startswith(quote, start):
        text, end = _read_quoted(source, line, start + len(quote), quote)
        text = text or options.get("emptyvalue", "")
        return (None if text == null else text), end
    end = line.find(separator, start)
    end = len(line) if end < 0 else end
    text = line[start:end]
    if "\n" in text or "\r" in text:
        raise ValueError("It has more than one line.")
    if options.get("ignoretrailingwhitespace") == "true":
        text = text.rstrip(_BLANK)
    return (None if text in ("", null) else text), end


def _read_quoted(source: RowSource, line: str, start: int, quote: str) -> tuple[str, int]:
    """Return the text of a quoted value and the position after its closing quote."""
    escape = source.options.get("escape", "\\")
    marked = f"{re.escape(escape + quote)}|" if escape else ""
    text = re.compile(f"(?:{marked}[^{re.escape(quote)}])*+").match(line, start)
    assert text is not None
    end = text.end() + len(quote)
    if end > len(line):
        raise ValueError(f"A value starts with {quote}, and the closing {quote} is missing.")
    if end < len(line) and not line.startswith(source.separator, end):
        raise ValueError(f"A {quote} inside a quoted value is written as {escape or quote}{quote}.")
    return text[0].replace(escape + quote, quote), end
