"""Reads the records of a flat file: fields as texts in canonical form, and the values that are promoted from them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from decimal import Decimal

from postroom.errors import BadValue, PipelineFailure, format_count
from postroom.pipelines.flat.csv_format import CsvFormat, FlatRowFormat
from postroom.pipelines.flat.csv_reader import Row
from postroom.pipelines.flat.definition import FlatFile
from postroom.pipelines.flat.layout import HEADER, Delimited, Field, Positional
from postroom.pipelines.promotions import promote_text
from postroom.values import Value, ValueType, check_value, value_from_text, value_to_text

_HINT = "Correct the record and send it again."
_NUMBERS = (ValueType.INT, ValueType.DECIMAL, ValueType.FLOAT)

#: The text of a field, or None where an empty one is left out.
Text = str | None
_Convert = Callable[[str], Text]


def row_format(layout: Delimited | Positional, *, encoding: str, end: str) -> FlatRowFormat:
    """Return the format of the lines of a layout."""
    if isinstance(layout, Positional):
        return FlatRowFormat(encoding=encoding, end=end)
    return CsvFormat(delimiter=layout.delimiter, quote=layout.quote, escape=layout.escape, encoding=encoding, end=end)


class RecordReader:
    """Reads records of one layout. The values of the fields in ``hidden`` are not shown in failures (SEC-14)."""

    def __init__(self, layout: Delimited | Positional, *, hidden: Collection[str] = ()) -> None:
        self._layout = layout
        #: The fields that need a conversion or a check.
        self._converters = [
            (position, _make_converter(field, is_hidden=field.name in hidden))
            for position, field in enumerate(layout.fields)
            if field.type is not ValueType.STR or field.width is not None or field.required
        ]
        self._spans: list[tuple[int, int]] = []
        position = len(layout.tag or "")
        for field in layout.fields:
            self._spans.append((position, position + (field.width or 0)))
            position += field.width or 0
        self._width = position

    def has_tag(self, row: Row) -> bool:
        """Return True if a record starts with the tag of this layout."""
        first = (row.fields[0] if row.fields else None) or ""
        tag = self._layout.tag or ""
        return first.startswith(tag) if isinstance(self._layout, Positional) else first == tag

    def texts(self, row: Row) -> list[Text]:
        """Return one text per field. Raises PipelineFailure with the line number if the record does not match the
        layout."""
        if row.failure is not None:
            raise row.failure
        try:
            cut = (
                self._split_positional(row.fields[0] or "")
                if isinstance(self._layout, Positional)
                else self._split_delimited(row)
            )
            texts: list[Text] = [*cut]
            for position, read in self._converters:
                texts[position] = read(cut[position])
            return texts
        except PipelineFailure as failure:
            raise add_line_number(row, failure) from None

    def _split_delimited(self, row: Row) -> list[str]:
        fields = [field or "" for field in row.fields]
        if self._layout.tag is not None:
            if fields[0] != self._layout.tag:
                raise self._tag_failure(fields[0])
            del fields[0]
        wanted = len(self._layout.fields)
        if len(fields) != wanted:
            raise PipelineFailure(
                f"the record has {format_count(len(fields), 'field')}, not {wanted}.",
                why=f"Its fields are: {', '.join(self._layout.names)[:300]}.",
                hint=f"{_HINT} A field that contains the delimiter must be quoted.",
            )
        return fields

    def _split_positional(self, text: str) -> list[str]:
        tag = self._layout.tag or ""
        if not text.startswith(tag):
            raise self._tag_failure(text[: len(tag)])
        assert isinstance(self._layout, Positional)
        if len(text) > self._width or (len(text) < self._width and not self._layout.allow_early_termination):
            raise PipelineFailure(
                f"the record has {format_count(len(text), 'character')}, not {self._width}.",
                why="The length of a positional record is the sum of the widths of its fields.",
                hint=f"{_HINT} If records may end early, set allow_early_termination.",
            )
        return [text[start:end] for start, end in self._spans]

    def _tag_failure(self, found: str) -> PipelineFailure:
        return PipelineFailure(
            f"the record does not start with {self._layout.tag!r}.", why=f"It starts with {found[:40]!r}.", hint=_HINT
        )

    def replace_value(self, row: Row, name: str, value: str) -> str:
        """Return the text of the record with another value in one field."""
        position = self._layout.names.index(name)
        if isinstance(self._layout, Positional):
            text = row.fields[0] or ""
            start, end = self._spans[position]
            return text[:start] + pad_field(self._layout.fields[position], value) + text[end:]
        fields = list(row.fields)
        fields[position + (self._layout.tag is not None)] = value
        layout = self._layout
        return layout.delimiter.join(quote_field(layout, field or "") for field in fields)


def pad_field(field: Field, text: str) -> str:
    """Return the text of a positional field in its width."""
    width = field.width or 0
    return text.rjust(width, field.pad) if field.justify == "right" else text.ljust(width, field.pad)


def quote_field(layout: Delimited, text: str, *, end: str = "\n") -> str:
    """Return the text of a delimited field, quoted and escaped if it contains marks."""
    # Also a part of a delimiter is marked: together with the delimiter after it, it could be read as another one.
    marks = dict.fromkeys((layout.escape or "") + (layout.quote or "") + layout.delimiter)
    if not any(mark in text for mark in (*marks, "\r", "\n", end)):
        return text
    if layout.escape is not None:
        for mark in marks:
            text = text.replace(mark, layout.escape + mark)
    elif layout.quote is not None:
        text = text.replace(layout.quote, layout.quote * 2)
    return text if layout.quote is None else f"{layout.quote}{text}{layout.quote}"


class FlatPromotion:
    """Reads the promoted values of a record. The values of the header are the same for every record."""

    def __init__(self, pipeline: FlatFile, header: Sequence[str | None]) -> None:
        self._values: list[Value | None] = []
        self._own = []
        for position, (prop, path) in enumerate(pipeline.promotions.entries):
            self._values.append(None)
            if not path.startswith(HEADER):
                self._own.append((position, prop, path, pipeline.record.names.index(path)))
            elif pipeline.header is not None and header:
                text = header[pipeline.header.names.index(path.removeprefix(HEADER))]
                self._values[position] = promote_text(prop, text, path=path)

    def values(self, texts: Sequence[str | None]) -> list[Value | None]:
        values = self._values.copy()
        for position, prop, path, index in self._own:
            values[position] = promote_text(prop, texts[index], path=path)
        return values


def add_line_number(row: Row, failure: PipelineFailure) -> PipelineFailure:
    """Return the failure with the line number of the row."""
    return PipelineFailure(f"Line {row.line}: {failure.what}", why=failure.why, hint=failure.hint)


def _make_converter(field: Field, *, is_hidden: bool) -> _Convert:
    strip = _make_strip(field)

    def read(text: str) -> Text:
        text = strip(text)
        if not text or (field.type is not ValueType.STR and not text.strip()):
            if field.required:
                raise PipelineFailure(f"{field.name} is empty.", why="The field is required.", hint=_HINT)
            return "" if field.type is ValueType.STR else None
        if field.type is ValueType.STR:
            return text
        try:
            return _to_canonical(field, text)
        except BadValue as error:
            why = "The value (hidden) is of another type." if is_hidden else error.what
            raise PipelineFailure(f"{field.name} cannot be read.", why=why, hint=_HINT) from None

    return read


def _make_strip(field: Field) -> Callable[[str], str]:
    """Return a function that removes the padding."""
    pad, is_left = field.pad, field.justify == "left"
    if field.width is None:
        return str
    if pad == "0" and field.type in _NUMBERS:
        # Keep one digit of a zero.
        return lambda text: (text.rstrip(pad) if is_left else text.lstrip(pad)) or text[:1]
    return lambda text: text.rstrip(pad) if is_left else text.lstrip(pad)


def _to_canonical(field: Field, text: str) -> str:
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
