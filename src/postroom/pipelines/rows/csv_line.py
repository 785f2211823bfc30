"""Splits a line of a CSV file as Spark's reader does, with its options."""

from __future__ import annotations

import re

from postroom.pipelines.rows.source import RowSource

#: The characters that Spark's reader trims.
_BLANK = "".join(map(chr, range(33)))


class BadLine(ValueError):
    """A line is not well-formed. The text is the reason."""


def split_line(source: RowSource, line: str) -> list[str | None]:
    """Return the values of a line, None for null. Raise BadLine if a quoted value is not closed."""
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
        raise BadLine("It has more than one line.")
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
        raise BadLine(f"A value starts with {quote}, and the closing {quote} is missing.")
    if end < len(line) and not line.startswith(source.separator, end):
        raise BadLine(f"A {quote} inside a quoted value is written as {escape or quote}{quote}.")
    return text[0].replace(escape + quote, quote), end
