"""Writes the records of a flat file and the rows of a table. Each is read again to check that nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence

from postroom.errors import BadValue, PipelineFailure
from postroom.pipelines.flat.csv_format import CsvFormat
from postroom.pipelines.flat.csv_reader import Row
from postroom.pipelines.flat.document import FieldTexts
from postroom.pipelines.flat.layout import Delimited, Field, Positional
from postroom.pipelines.flat.record import RecordReader, pad_field, quote_field, row_format
from postroom.values import ValueType, value_from_text

_HINT = "Correct the document or the layout; then resume."


class RecordWriter:
    """Writes records of one layout, without the end of the record. ``role`` is the name of the record in failures."""

    def __init__(self, layout: Delimited | Positional, *, role: str, end: str) -> None:
        self._layout = layout
        self._role = role
        self._end = "\n" if end == "\r\n" else end
        self._format = row_format(layout, encoding="utf-8", end=self._end)
        self._reader = RecordReader(layout)

    def write(self, texts: FieldTexts) -> str:
        """Return the record with these texts. Raise PipelineFailure if a receiver would not read the same values."""
        written = [self._write_text(field, texts.get(field.name)) for field in self._layout.fields]
        record = self._join(written)
        if isinstance(self._layout, Positional) and {"\r", "\n", self._end} & set(record):
            raise self._failure("A field contains the end of a record.")
        if not record.strip("\r\n"):
            raise self._failure("It is empty, and readers ignore empty lines.")
        self._check(record, written)
        return record

    def _write_text(self, field: Field, text: str | None) -> str:
        if not text or (field.type is not ValueType.STR and not text.strip()):
            if field.required:
                raise self._failure(f"The field {field.name} is required, and it is empty.")
            return ""
        if field.type is ValueType.STR:
            return text
        try:
            value = value_from_text(field.type, text)
        except BadValue:
            noun = field.type.noun
            raise self._failure(f"The value of {field.name} does not fit the type of the field, {noun}.") from None
        if field.format is None:
            return text.strip()
        # A time without a zone is the server's local time (CTX-15).
        return value.astimezone().strftime(field.format)  # type: ignore[union-attr]

    def _join(self, written: Sequence[str]) -> str:
        layout = self._layout
        if isinstance(layout, Positional):
            for field, text in zip(layout.fields, written, strict=True):
                if len(text) > (field.width or 0):
                    raise self._failure(
                        f"The value of {field.name} has {len(text)} characters, and the field has {field.width}."
                    )
            padded = (_pad(field, text) for field, text in zip(layout.fields, written, strict=True))
            return (layout.tag or "") + "".join(padded)
        fields = [*([] if layout.tag is None else [layout.tag]), *written]
        record = layout.delimiter.join(quote_field(layout, text, end=self._end) for text in fields)
        return record or (layout.quote or "") * 2

    def _check(self, record: str, written: Sequence[str]) -> None:
        """Raise PipelineFailure if the record is read as other values."""
        fields = self._format.fields(record)
        if fields is None:
            raise self._failure("A field contains a character that cannot be written without a quote or an escape.")
        try:
            texts = self._reader.texts(Row(line=1, offset=0, raw=b"", fields=fields))
        except PipelineFailure as failure:
            raise self._failure(f"It would be read as another record: {failure.what}") from None
        for field, text, read in zip(self._layout.fields, written, texts, strict=True):
            if field.format is None and not _is_same(field, text, read):
                raise self._failure(f"The value of {field.name} starts or ends with padding, or contains a delimiter.")

    def _failure(self, why: str) -> PipelineFailure:
        return PipelineFailure(f"The {self._role} cannot be written.", why=why, hint=_HINT)


def _pad(field: Field, text: str) -> str:
    # Zeros are a number. Spaces are read as an absent value.
    is_absent = not text and field.type is not ValueType.STR
    return " " * (field.width or 0) if is_absent else pad_field(field, text)


def _is_same(field: Field, text: str, read: str | None) -> bool:
    if field.type is ValueType.STR or not text or not read:
        return text == (read or "")
    return value_from_text(field.type, text) == value_from_text(field.type, read)


def write_row(layout: Delimited, format: CsvFormat, texts: Sequence[str | None], *, end: str) -> str:
    """Return a row of delimited text without its end. None is a field without text, and an empty text is quoted."""
    quoted_empty = (layout.quote or "") * 2
    cells = [quoted_empty if text == "" else quote_field(layout, text or "", end=end) for text in texts]
    row = layout.delimiter.join(cells)
    if not row and layout.quote is not None and len(texts) == 1:
        raise PipelineFailure(
            "The row cannot be written.", why="It is empty, and readers ignore empty lines.", hint=_HINT
        )
    expected = [text or None if layout.quote is None else text for text in texts]
    if format.fields(row) != expected:
        raise PipelineFailure(
            "The row cannot be written.",
            why="A field contains a character that cannot be written without a quote.",
            hint=_HINT,
        )
    return row
