"""The format of delimited rows: delimiter, quote, header and encoding (strict RFC 4180)."""

from __future__ import annotations

import codecs
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from postroom.pipelines.flat.definition import Csv

#: The text of a field, or None if it is empty and not quoted.
Field = str | None

_ASCII = bytes(range(128))


class FlatRowFormat:
    """The format of rows that are one line with one field each.

    Lines end with LF or CR LF, or with the character ``end``. In the latter case line ends around the lines are
    ignored.
    """

    quote: str | None = None

    def __init__(self, *, encoding: str, end: str = "\n") -> None:
        # A byte order mark belongs to the interchange, not to each of its lines.
        codec = codecs.lookup(encoding).name
        self.encoding = "utf-8" if codec == "utf-8-sig" else codec
        self.end = end.encode(self.encoding)
        self._end = end

    def strip_end(self, line: str) -> str:
        """Return a line without its end."""
        if self._end == "\n":
            return line.removesuffix("\n").removesuffix("\r")
        return line.removesuffix(self._end).strip("\r\n")

    def is_open(self, text: str) -> bool:
        """Return True if ``text``, which is one or more lines, ends inside a quoted field. Exact for well-formed
        text."""
        return False

    def max_fields(self, row: str) -> int:
        """Return an upper bound of the number of fields of a row, without parsing it."""
        return 1

    def fields(self, row: str) -> list[Field] | None:
        """Parse the fields of a row without its line end. Return None if it is malformed."""
        return [row]


class CsvFormat(FlatRowFormat):
    """Parses delimited rows. The character after an ``escape`` has no special meaning."""

    def __init__(
        self, *, delimiter: str, quote: str | None, encoding: str, escape: str | None = None, end: str = "\n"
    ) -> None:
        super().__init__(encoding=encoding, end=end)
        self.delimiter = delimiter
        self.quote = quote
        self._escape = escape
        d, q, e = re.escape(delimiter), re.escape(quote or ""), re.escape(escape or "")
        escaped = f"|{e}." if escape else ""
        # A delimiter of several characters needs a lookahead, which is slower.
        plain = rf"[^{q}{e}{d}\r\n]" if len(delimiter) == 1 else rf"(?!{d})[^{q}{e}\r\n]"
        plain = plain if plain.startswith("[") and not escape else f"(?:{plain}{escaped})"
        field = rf"(?P<plain>{plain}*+)"
        if quote:
            field = rf"(?:{q}(?P<quoted>(?:[^{q}{e}]|{q}{q}{escaped})*+){q}|{field})"
        has_marks = quote is not None or escape is not None
        self._field = re.compile(rf"(?:\A|{d}){field}", re.DOTALL) if has_marks else None
        anonymous = re.sub(r"\?P<\w+>", "?:", field)
        self._row = re.compile(rf"{anonymous}(?:{d}{anonymous})*+", re.DOTALL) if has_marks else None
        self._escaped = re.compile(rf"{e}.", re.DOTALL) if escape else None
        self._marked = re.compile(rf"(?:{e}{'|' if quote else ''}{q})(.)", re.DOTALL) if escape else None

    def is_open(self, text: str) -> bool:
        if self.quote is None:
            return False
        if self._escaped is not None:
            text = self._escaped.sub("", text)
        return text.count(self.quote) % 2 == 1

    def max_fields(self, row: str) -> int:
        return row.count(self.delimiter) + 1

    def fields(self, row: str) -> list[Field] | None:
        if (self.quote is None or self.quote not in row) and (self._escape is None or self._escape not in row):
            return None if "\r" in row or "\n" in row else [field or None for field in row.split(self.delimiter)]
        assert self._row is not None
        assert self._field is not None
        if self._row.fullmatch(row) is None:
            return None
        found: list[Field] = []
        for match in self._field.finditer(row):
            quoted = match["quoted"] if self.quote else None
            found.append(self._unescape(match["plain"]) or None if quoted is None else self._unescape(quoted))
        return found

    def _unescape(self, field: str) -> str:
        """Return the text of a field without escapes and with single quotes for doubled ones."""
        if self._marked is not None:
            return self._marked.sub(r"\1", field)
        return field if self.quote is None else field.replace(self.quote * 2, self.quote)


def problems(csv: Csv) -> list[str]:
    """Describe what is wrong with the format of a definition and with the columns that it promotes."""
    found = _character_problems("delimiter", csv.delimiter)
    if csv.quote is not None:
        found += _character_problems("quote", csv.quote)
        if csv.quote == csv.delimiter:
            found.append(f"The delimiter and the quote are the same character, {csv.quote!r}.")
    if (problem := _encoding_problem(csv.encoding)) is not None:
        found.append(problem)
    if csv.header is False and csv.promotions:
        found.append("Nothing can be promoted from columns without names; give header=True or a list of names.")
    if isinstance(csv.header, tuple):
        if not csv.header:
            found.append("The list of column names is empty.")
        repeated = sorted({name for name in csv.header if csv.header.count(name) > 1})
        found += [f"Two columns are named {name!r}." for name in repeated]
        for prop, column in csv.promotions.entries:
            if column.strip() and column not in csv.header:
                found.append(f"{prop.dotted_name} is promoted from {column!r}, which is not among the columns.")
    return found


def _character_problems(name: str, character: str) -> list[str]:
    if len(character) != 1:
        return [f"The {name} {character!r} has {len(character)} characters; it must be one."]
    if character in "\r\n\0":
        return [f"The {name} {character!r} cannot be distinguished from a line end."]
    return []


def _encoding_problem(encoding: str) -> str | None:
    try:
        transparent = _ASCII.decode(encoding) == _ASCII.decode("ascii")
    except LookupError:
        return f"{encoding!r} is not a known text encoding."
    except ValueError:
        transparent = False
    if transparent:
        return None
    return f"Lines cannot be found in the encoding {encoding!r}; convert the interchange to UTF-8."
