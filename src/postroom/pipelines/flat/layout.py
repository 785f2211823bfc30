"""The layouts of flat file records: delimited fields, or fields of fixed widths.

Positional([Field("number", int, width=6, pad="0", justify="right"), Field("region", width=2)], tag="ORD")
Delimited(["number", "region", Field("total", Decimal)], delimiter=";")
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict
from pydantic import Field as Setting

from postroom.values import ValueType

if TYPE_CHECKING:
    from postroom.pipelines.flat.definition import FlatFile

#: A name that needs no escape in XML, JSON or a path.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
#: The prefix of the path of a property that is promoted from the header.
HEADER = "header."


def _to_value_type(source: object) -> object:
    return ValueType.of(source) if isinstance(source, type) else source


class Field(BaseModel):
    """One field of a record: ``Field("total", Decimal, width=12, justify="right")``.

    ``width``, ``pad`` and ``justify`` are for positional records. The width is in characters. A value that is justified
    left is padded on its right, and vice versa. ``format`` is the format of a date, in the codes of ``strptime``. The
    default is ISO 8601. An empty str field is an empty text. An empty field of another type is omitted from the
    document, unless it is ``required``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    type: Annotated[ValueType, BeforeValidator(_to_value_type)] = ValueType.STR
    width: int | None = None
    pad: str = " "
    justify: Literal["left", "right"] = "left"
    required: bool = False
    format: str | None = None

    def __init__(self, name: str, type: Any = str, **settings: Any) -> None:
        super().__init__(name=name, type=type, **settings)

    def problems(self) -> Iterator[str]:
        if not NAME.fullmatch(self.name):
            yield f"{self.name!r} is not a valid field name; use letters, digits, _ and -, and start with a letter."
        if len(self.pad) != 1:
            yield f"The padding {self.pad!r} of {self.name} must be one character."
        if self.format is not None:
            if self.type is not ValueType.DATETIME:
                yield f"{self.name} has a format, which is for dates only."
            elif (problem := _find_format_problem(self.format)) is not None:
                yield f"The format {self.format!r} of {self.name} cannot be read: {problem}."


def _find_format_problem(format: str) -> str | None:
    moment = datetime(2026, 1, 31, 12, 30, 45, tzinfo=UTC)
    try:
        datetime.strptime(moment.strftime(format), format)  # noqa: DTZ007 - only the format is checked
    except ValueError as error:
        return str(error)
    return None


def _to_fields(source: object) -> object:
    if not isinstance(source, list | tuple):
        return source
    return tuple(
        Field(field) if isinstance(field, str) else Field(**field) if isinstance(field, dict) else field
        for field in source
    )


class _Layout(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    fields: Annotated[Sequence[Field], BeforeValidator(_to_fields)]
    tag: str | None = None

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def problems(self) -> Iterator[str]:
        if not self.fields:
            yield "There are no fields."
        if self.tag == "":
            yield "The tag is empty; leave it out for records without one."
        if self.tag and set(self.tag) & set("\r\n\0"):
            yield f"The tag {self.tag!r} contains a line end or a NUL character."
        for name in sorted({name for name in self.names if self.names.count(name) > 1}):
            yield f"Two fields are named {name!r}."
        for field in self.fields:
            yield from field.problems()


class Delimited(_Layout):
    """Fields with a ``delimiter`` between them. A quoted field may contain delimiters, line ends and doubled quotes.
    The character after an ``escape`` has no special meaning. A ``tag`` is the first text of a record and is not a
    field. Only records with this tag match."""

    kind: Literal["delimited"] = "delimited"
    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None

    def __init__(self, fields: Sequence[Field | str], **settings: Any) -> None:
        super().__init__(**{"fields": fields, **settings})

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if not self.delimiter or set(self.delimiter) & set("\r\n\0"):
            yield f"The delimiter {self.delimiter!r} must have at least one character and no line end."
        marks = {"quote": self.quote, "escape": self.escape}
        for name, mark in marks.items():
            if mark is not None and (len(mark) != 1 or mark in "\r\n\0" or mark in self.delimiter):
                yield f"The {name} {mark!r} must be one character that is neither a line end nor part of the delimiter."
        if self.quote is not None and self.quote == self.escape:
            yield f"The quote and the escape are the same character, {self.quote!r}."
        for name, mark in {"delimiter": self.delimiter, **marks}.items():
            if mark and self.tag and mark in self.tag:
                # The tag is compared with the first field, which ends before the delimiter.
                yield f"The tag {self.tag!r} contains the {name} {mark!r}; write the tag without it."
        yield from (
            f"{field.name} has a width, which is for positional records." for field in self.fields if field.width
        )


class Positional(_Layout):
    """Fields of fixed widths after the optional ``tag``. The length of a record is the sum of the widths. With
    ``allow_early_termination`` it may be shorter, and the missing fields are empty."""

    kind: Literal["positional"] = "positional"
    allow_early_termination: bool = False

    def __init__(self, fields: Sequence[Field], **settings: Any) -> None:
        super().__init__(**{"fields": fields, **settings})

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        for field in self.fields:
            if field.width is None or field.width < 1:
                yield f"{field.name} needs a width of at least one character."


Layout = Annotated[Delimited | Positional, Setting(discriminator="kind")]


def problems(flat: FlatFile) -> list[str]:
    """Describe what is wrong with the layouts of a definition and with the fields that it promotes."""
    found = []
    roles = {"record": flat.record, **flat.lines, "header": flat.header, "trailer": flat.trailer}
    for role, layout in roles.items():
        if layout is not None:
            found += [f"{role}: {problem}" for problem in layout.problems()]
    found += _line_problems(flat)
    namespace, _, root = flat.message_type.rpartition("#")
    if not NAME.fullmatch(root) or "#" in namespace or (flat.message_type.startswith("#")):
        found.append(f"The message type {flat.message_type!r} must be a name, or a namespace, # and a name.")
    found += _promotion_problems(flat)
    if flat.count is not None:
        counted = [field for field in flat.trailer.fields if field.name == flat.count] if flat.trailer else []
        if not counted:
            found.append(f"count is {flat.count!r}, which is not a field of the trailer.")
        elif counted[0].type is not ValueType.INT:
            found.append(f"count is {flat.count!r}, which must be an int field.")
    return [*found, *_end_problems(flat)]


def _line_problems(flat: FlatFile) -> Iterator[str]:
    """Yield the problems of lines. Records and lines are distinguished by their tags."""
    tags = {flat.record.tag}
    for name, layout in flat.lines.items():
        if not NAME.fullmatch(name) or name in (*flat.record.names, "record", "header", "trailer"):
            yield f"{name!r} cannot be the name of a line: it is invalid, or the name of a field of the record."
        if flat.record.tag is None or layout.tag is None:
            yield f"{name}: the record and its lines need tags, which distinguish them."
        elif any(tag and (tag.startswith(layout.tag) or layout.tag.startswith(tag)) for tag in tags):
            yield f"{name}: its tag {layout.tag!r} is the start of another tag, or another tag is the start of it."
        if _get_marks(layout) != _get_marks(flat.record):
            yield f"{name}: it needs the same delimiters as the record."
        tags.add(layout.tag)


def _get_marks(layout: Delimited | Positional) -> tuple[str | None, ...]:
    """Return the characters that separate fields."""
    return (layout.delimiter, layout.quote, layout.escape) if isinstance(layout, Delimited) else ()


def _promotion_problems(flat: FlatFile) -> Iterator[str]:
    for prop, path in flat.promotions.entries:
        layout: Delimited | Positional | None = flat.header if path.startswith(HEADER) else flat.record
        if path.strip() and (layout is None or path.removeprefix(HEADER) not in layout.names):
            there = "header" if path.startswith(HEADER) else "record"
            yield f"{prop.dotted_name} is promoted from {path!r}, which is not a field of the {there}."


def _end_problems(flat: FlatFile) -> Iterator[str]:
    try:
        codec = codecs.lookup(flat.encoding)
        if not codec._is_text_encoding:
            raise LookupError
        # Every ASCII character must be one byte, and the same byte at every position.
        plain = "".join(map(chr, range(32, 127)))
        name = codec.name.removesuffix("-sig")
        is_plain = len(plain.encode(name)) == len(plain)
        end = flat.end.encode(name)
    except LookupError:
        yield f"{flat.encoding!r} is not a known text encoding."
        return
    except UnicodeEncodeError:
        is_plain, end = True, b""
    if not is_plain:
        yield f"Records cannot be found in the encoding {flat.encoding!r}; convert the file to UTF-8."
    elif len(flat.end) != 1 or len(end) != 1:
        yield f"The end of a record, {flat.end!r}, must be one character that is one byte."
    elif flat.end.isprintable() and not _has_separate_ascii(flat.encoding):
        yield f"In the encoding {flat.encoding!r} the end {flat.end!r} may be part of another character."


def _has_separate_ascii(encoding: str) -> bool:
    """Return True if an ASCII byte is never part of another character."""
    name = codecs.lookup(encoding).name
    return name.startswith("utf-8") or len(bytes(range(256)).decode(encoding, "replace")) == 256
