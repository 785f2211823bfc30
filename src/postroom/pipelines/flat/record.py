"""A record of a flat file: its fields as texts in their canonical form, read by a layout."""

from __future__ import annotations

from collections.abc import Callable, Collection
from datetime import datetime
from decimal import Decimal

from postroom.errors import BadValue, PipelineFailure
from postroom.pipelines.flat.csv_format import CsvFormat, RowFormat
from postroom.pipelines.flat.csv_reader import Row
from postroom.pipelines.flat.layout import Delimited, Field, Positional
from postroom.values import ValueType, check_value, value_from_text, value_to_text

_HINT = "Correct the record and send it again."
_NUMBERS = (ValueType.INT, ValueType.DECIMAL, ValueType.FLOAT)

#: The text of a field, or None where an empty one is left out.
Text = str | None
_Read = Callable[[str], Text]


def format_of(layout: Delimited | Positional, *, encoding: str, end: str) -> RowFormat:
    """How the lines of a layout are read."""
    if isinstance(layout, Positional):
        return RowFormat(encoding=encoding, end=end)
    return CsvFormat(delimiter=layout.delimiter, quote=layout.quote, escape=layout.escape, encoding=encoding, end=end)


class RecordReader:
    """Reads records of one layout. What stands in a field of ``hidden`` is never shown in a reason (SEC-14)."""

    def __init__(self, layout: Delimited | Positional, *, hidden: Collection[str] = ()) -> None:
        self._layout = layout
        #: The fields that are more than the text that stands there.
        self._reads = [
            (position, _reader(field, is_hidden=field.name in hidden))
            for position, field in enumerate(layout.fields)
            if field.type is not ValueType.STR or field.width is not None or field.required
        ]
        self._spans: list[tuple[int, int]] = []
        position = len(layout.tag or "")
        for field in layout.fields:
            self._spans.append((position, position + (field.width or 0)))
            position += field.width or 0
        self._width = position

    def is_tagged(self, row: Row) -> bool:
        """Whether a record begins with the tag of this layout."""
        first = (row.fields[0] if row.fields else None) or ""
        tag = self._layout.tag or ""
        return first.startswith(tag) if isinstance(self._layout, Positional) else first == tag

    def texts(self, row: Row) -> list[Text]:
        """One per field. PipelineFailure, with the line, if it is no such record."""
        if row.failure is not None:
            raise row.failure
        try:
            cut = (
                self._positional(row.fields[0] or "") if isinstance(self._layout, Positional) else self._delimited(row)
            )
            texts: list[Text] = [*cut]
            for position, read in self._reads:
                texts[position] = read(cut[position])
            return texts
        except PipelineFailure as failure:
            raise in_line(row, failure) from None

    def _delimited(self, row: Row) -> list[str]:
        fields = [field or "" for field in row.fields]
        if self._layout.tag is not None:
            if fields[0] != self._layout.tag:
                raise self._other_tag(fields[0])
            del fields[0]
        wanted = len(self._layout.fields)
        if len(fields) != wanted:
            raise PipelineFailure(
                f"the record has {_counted(len(fields), 'field')}, not {wanted}.",
                why=f"Its fields are: {', '.join(self._layout.names)[:300]}.",
                hint=f"{_HINT} A field that contains the delimiter must be quoted.",
            )
        return fields

    def _positional(self, text: str) -> list[str]:
        tag = self._layout.tag or ""
        if not text.startswith(tag):
            raise self._other_tag(text[: len(tag)])
        assert isinstance(self._layout, Positional)
        if len(text) > self._width or (len(text) < self._width and not self._layout.allow_early_termination):
            raise PipelineFailure(
                f"the record has {_counted(len(text), 'character')}, not {self._width}.",
                why="A positional record is as long as its fields are together.",
                hint=f"{_HINT} If records may end early, say so with allow_early_termination.",
            )
        return [text[start:end] for start, end in self._spans]

    def _other_tag(self, found: str) -> PipelineFailure:
        return PipelineFailure(
            f"the record does not begin with {self._layout.tag!r}.",
            why=f"It begins with {found[:40]!r}.",
            hint=_HINT,
        )

    def with_value(self, row: Row, name: str, value: str) -> str:
        """The record as it is written, with another value in one field."""
        position = self._layout.names.index(name)
        if isinstance(self._layout, Positional):
            text = row.fields[0] or ""
            (start, end), field = self._spans[position], self._layout.fields[position]
            width = end - start
            filled = value.rjust(width, field.pad) if field.justify == "right" else value.ljust(width, field.pad)
            return text[:start] + filled + text[end:]
        fields = list(row.fields)
        fields[position + (self._layout.tag is not None)] = value
        return self._layout.delimiter.join(map(self._written, fields))

    def _written(self, field: str | None) -> str:
        layout = self._layout
        assert isinstance(layout, Delimited)
        text = field or ""
        marks = [mark for mark in (layout.delimiter, layout.quote, layout.escape, "\r", "\n") if mark]
        if not any(mark in text for mark in marks):
            return text
        if layout.escape is not None:
            for mark in (layout.escape, layout.quote, layout.delimiter):
                text = text.replace(mark, layout.escape + mark) if mark else text
        elif layout.quote is not None:
            text = text.replace(layout.quote, layout.quote * 2)
        return text if layout.quote is None else f"{layout.quote}{text}{layout.quote}"


def in_line(row: Row, failure: PipelineFailure) -> PipelineFailure:
    """The failure with the number of the line before it."""
    return PipelineFailure(f"Line {row.line}: {failure.what}", why=failure.why, hint=failure.hint)


def _reader(field: Field, *, is_hidden: bool) -> _Read:
    strip = _strip(field)

    def read(text: str) -> Text:
        text = strip(text)
        if not text or (field.type is not ValueType.STR and not text.strip()):
            if field.required:
                raise PipelineFailure(f"{field.name} is empty.", why="The field is required.", hint=_HINT)
            return "" if field.type is ValueType.STR else None
        if field.type is ValueType.STR:
            return text
        try:
            return _canonical(field, text)
        except BadValue as error:
            why = "What stands there (hidden) is of another type." if is_hidden else error.what
            raise PipelineFailure(f"{field.name} cannot be read.", why=why, hint=_HINT) from None

    return read


def _strip(field: Field) -> Callable[[str], str]:
    """Takes the padding off."""
    pad, is_left = field.pad, field.justify == "left"
    if field.width is None:
        return str
    if pad == "0" and field.type in _NUMBERS:
        # Of a zero, nothing would be left.
        return lambda text: (text.rstrip(pad) if is_left else text.lstrip(pad)) or text[:1]
    return lambda text: text.rstrip(pad) if is_left else text.lstrip(pad)


def _canonical(field: Field, text: str) -> str:
    if field.format is not None:
        try:
            moment = datetime.strptime(text.strip(), field.format)  # noqa: DTZ007 - the zone follows
        except ValueError:
            raise BadValue(f"{text!r} is not a date in the form {field.format}.") from None
        try:
            # A time without a zone is the server's local time (CTX-15).
            moment = moment.astimezone() if moment.tzinfo is None else moment
        except (ValueError, OverflowError, OSError):
            raise BadValue(f"{text!r} is outside the years 1 to 9999 in UTC.") from None
        value = check_value(ValueType.DATETIME, moment)
    else:
        value = value_from_text(field.type, text)
    return f"{value:f}" if isinstance(value, Decimal) else value_to_text(value)


def _counted(number: int, noun: str) -> str:
    return f"one {noun}" if number == 1 else f"{number} {noun}s"
