"""Reads a bad row that was corrected and resumed: as a line of its file, or as the message that it should have become.

The text is read without Spark. A line of a CSV file is converted to the message by the schema and the options of the
reader. A text that is a JSON object is the message.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from functools import partial
from typing import Any, ClassVar, Literal

from postroom.errors import BadValue, PipelineFailure
from postroom.message import Body
from postroom.pipelines.definition import Disassemble, Format, Promoting
from postroom.pipelines.documents.disassembled_batch import (
    BatchSize,
    DisassembledBatch,
    Document,
    build_batch,
    read_whole,
)
from postroom.pipelines.flat.definition import Csv
from postroom.pipelines.flat.layout import Delimited
from postroom.pipelines.flat.record import quote_field
from postroom.pipelines.json.definition import Json
from postroom.pipelines.promotions import Promotions, bad_value_failure
from postroom.pipelines.rows.definition import Rows
from postroom.pipelines.rows.row_text import BadCell, describe_misfit, parse_value, read_texts
from postroom.pipelines.rows.source import RowSource
from postroom.properties import Property
from postroom.values import Value, ValueType, check_promoted

#: The hint for a bad row that is corrected in the form that it has in its file.
LINE_HINT = "Resume the instance with the corrected line, or terminate it."

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_RFC_4180 = Delimited(["row"])


class CorrectedRow(Promoting, Format):
    """Reads a corrected row of a file of text. Never stored."""

    kind: Literal["corrected-row"] = "corrected-row"
    content_type: ClassVar[str] = "text/plain"
    recoverable: ClassVar[bool] = False
    bad_documents: ClassVar[int | None] = None
    rows: Rows

    def get_document_type(self, interchange_type: str) -> str:
        return self.rows.body_content_type

    def _load_disassembler(self) -> Disassemble:
        return partial(disassemble, self.rows)


def disassemble(pipeline: Rows, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    """Yield one message. Raise PipelineFailure if it does not fit the schema."""
    try:
        return _read_row(pipeline, body, size)
    except PipelineFailure as failure:
        raise PipelineFailure(failure.what, why=failure.why, hint=get_correction_hint(pipeline)) from None


def _read_row(pipeline: Rows, body: Body, size: BatchSize) -> Iterator[DisassembledBatch]:
    content = read_whole(body, "row")
    source = pipeline.source
    if pipeline.body == "json" and content.removeprefix(_BYTE_ORDER_MARK).lstrip().startswith(b"{"):
        if source is not None and _is_json(content):  # otherwise the reader of the message explains it
            _read_values(source.for_messages("json"), content, pipeline.hidden_columns)
    elif source is not None and source.format == "csv":
        try:
            return iter([_read_line(pipeline, source, content)])
        except PipelineFailure:
            # It may be the message, which has commas and the quotes of RFC 4180.
            if pipeline.body != "csv" or not _is_csv_message(source, content):
                raise
    format = row_format(pipeline)
    return _pass_through(pipeline, body) if format is None else format.disassembler(body, size)


def row_format(pipeline: Rows) -> Json | Csv | None:
    """Return the format of the messages, or None if they are the value of one column, whose format is not known."""
    match pipeline.body:
        case "json":
            promote = Promotions(tuple((prop, path.replace(".", "\\.")) for prop, path in pipeline.promotions.entries))
            return Json(promote=promote, message_type=pipeline.message_type)
        case "csv":
            return Csv(promote=pipeline.promotions, header=pipeline.columns, message_type=pipeline.message_type)
    return None


def can_correct(pipeline: Rows) -> bool:
    """Return True if a bad row can be corrected: its line or its message contains all promoted values."""
    return is_corrected_as_line(pipeline) or row_format(pipeline) is not None or not pipeline.promotes


def is_corrected_as_line(pipeline: Rows) -> bool:
    """Return True if a bad row is corrected in the form that it has in its file."""
    source = pipeline.source
    return source is not None and (source.format == "csv" or (source.format == "json" and pipeline.body == "json"))


def get_correction_hint(pipeline: Rows) -> str:
    """Return what to do about a bad row."""
    if is_corrected_as_line(pipeline):
        return LINE_HINT
    if can_correct(pipeline):
        form = f" as {pipeline.body.upper()}" if pipeline.body else ""
        return f"Resume the instance with the correct message{form}, or terminate it."
    return "Terminate the instance and send the row again. Its message does not contain the promoted values."


def check_can_correct(pipeline: Rows) -> None:
    """Raise PipelineFailure if a bad row cannot be corrected."""
    if not can_correct(pipeline):
        raise PipelineFailure(
            "A bad row cannot be resumed if its message is one column and properties are promoted from others.",
            hint="Publish the message and its properties with 'postroom publish', and terminate the instance.",
        )


def _pass_through(pipeline: Rows, body: Body) -> Iterator[DisassembledBatch]:
    check_can_correct(pipeline)
    yield build_batch((), Document(1, read_whole(body, "row"), (), pipeline.message_type))


# -- lines ---------------------------------------------------------------------------------------------------------


def _read_line(pipeline: Rows, source: RowSource, content: bytes) -> DisassembledBatch:
    hidden = pipeline.hidden_columns
    values = _read_values(source, content, hidden)
    promoted = [_promote(prop, path, values.get(path)) for prop, path in pipeline.promotions.entries]
    return build_batch(pipeline.promotes, Document(1, _write_body(pipeline, values), promoted, pipeline.message_type))


def _read_values(source: RowSource, content: bytes, hidden: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return the values of a row by column. Raise PipelineFailure if it does not fit the schema."""
    try:
        text = content.removeprefix(_BYTE_ORDER_MARK).decode(source.encoding)
        texts = read_texts(source, text.removesuffix("\n").removesuffix("\r"))
    except UnicodeDecodeError:
        raise _misfit(f"It is not {source.encoding}.") from None
    except ValueError as error:
        raise _misfit(str(error)) from None
    values: dict[str, Any] = {}
    for name, column_type in source.types.items():
        cell = texts[name]
        try:
            values[name] = None if cell is None else parse_value(source, name, cell)
        except BadCell as error:
            shown = describe_misfit(column_type, None) if name in hidden else str(error)
            raise _misfit(f"The column {name!r} {shown}.") from None
    return values


def _promote(prop: Property, path: str, value: Any) -> Value | None:
    if value is None:
        return None
    try:
        return check_promoted(prop.check(Decimal(value) if prop.value_type is ValueType.DECIMAL else value))
    except BadValue as error:
        raise bad_value_failure(prop, path, error) from None


def _write_body(pipeline: Rows, values: Mapping[str, Any]) -> bytes:
    if pipeline.column is not None:
        value = values[pipeline.column]
        if value is None:
            raise _misfit(f"The column {pipeline.column!r}, which is the body, has no value.")
        return write_text(value).encode()
    if pipeline.body == "csv":
        return ",".join(map(_write_cell, values.values())).encode()
    members = (f"{json.dumps(name, ensure_ascii=False)}:{write_json_value(value)}" for name, value in values.items())
    return f"{{{','.join(members)}}}".encode()


def _write_cell(value: Any) -> str:
    return "" if value is None else quote_field(_RFC_4180, write_text(value)) or '""'


def write_json_value(value: Any) -> str:
    """Return a value as Spark writes it in a JSON document."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case Decimal():
            return f"{value:f}"
        case float():
            return _write_float(value)
        case int():
            return str(value)
        case _:
            return json.dumps(write_text(value), ensure_ascii=False)


def write_text(value: Any) -> str:
    """Return a value that is not null as Spark writes it in a CSV line."""
    match value:
        case bool() | Decimal() | float() | int():
            return write_json_value(value)
        case datetime():
            return f"{value:%Y-%m-%dT%H:%M:%S.%f}Z"
        case date():
            return value.isoformat()
        case _:
            return str(value)


def _write_float(value: float) -> str:
    """Return the text that Java writes for a double."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, _, exponent = f"{Decimal(repr(value)).normalize():e}".partition("e")
    return f"{mantissa if '.' in mantissa else f'{mantissa}.0'}E{int(exponent)}"


# -- messages ------------------------------------------------------------------------------------------------------


def _is_json(content: bytes) -> bool:
    try:
        json.loads(content.removeprefix(_BYTE_ORDER_MARK))
    except ValueError:
        return False
    return True


def _is_csv_message(source: RowSource, content: bytes) -> bool:
    try:
        _read_values(source.for_messages("csv"), content)
    except PipelineFailure:
        return False
    return True


def _misfit(why: str) -> PipelineFailure:
    return PipelineFailure("The corrected row does not fit the schema.", why=why)
