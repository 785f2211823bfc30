"""How the records of a flat file are laid out: fields between delimiters, or fields of fixed widths.

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
    from postroom.pipelines.definitions import FlatFile

#: Names of elements that need no care in XML, JSON or a path.
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*")
#: What the path of a promotion begins with that is read from the header.
HEADER = "header."


def _value_type(source: object) -> object:
    return ValueType.of(source) if isinstance(source, type) else source


class Field(BaseModel):
    """One field of a record: ``Field("total", Decimal, width=12, justify="right")``.

    ``width`` is in characters and for positional records, as are ``pad`` and ``justify``: a value at the left is filled
    up with the padding on its right, and the other way round. ``format`` is how a date is written, in the codes of
    ``strptime``; without one it is ISO 8601. An empty field is an empty text; of another type it is left out of the
    document, unless it is ``required``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    type: Annotated[ValueType, BeforeValidator(_value_type)] = ValueType.STR
    width: int | None = None
    pad: str = " "
    justify: Literal["left", "right"] = "left"
    required: bool = False
    format: str | None = None

    def __init__(self, name: str, type: Any = str, **settings: Any) -> None:
        super().__init__(name=name, type=type, **settings)

    def problems(self) -> Iterator[str]:
        if not NAME.fullmatch(self.name):
            yield f"{self.name!r} is not the name of a field; use letters, digits, _ and -, a letter first."
        if len(self.pad) != 1:
            yield f"The padding {self.pad!r} of {self.name} must be one character."
        if self.format is not None:
            if self.type is not ValueType.DATETIME:
                yield f"{self.name} has a format, which is for dates only."
            elif (problem := _format_problem(self.format)) is not None:
                yield f"The format {self.format!r} of {self.name} cannot be read: {problem}."


def _format_problem(format: str) -> str | None:
    moment = datetime(2026, 1, 31, 12, 30, 45, tzinfo=UTC)
    try:
        datetime.strptime(moment.strftime(format), format)  # noqa: DTZ007 - only the format counts here
    except ValueError as error:
        return str(error)
    return None


def _fields(source: object) -> object:
    if not isinstance(source, list | tuple):
        return source
    return tuple(
        Field(one) if isinstance(one, str) else Field(**one) if isinstance(one, dict) else one for one in source
    )


class _Layout(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    fields: Annotated[Sequence[Field], BeforeValidator(_fields)]
    tag: str | None = None

    @property
    def names(self) -> list[str]:
        return [field.name for field in self.fields]

    def problems(self) -> Iterator[str]:
        if not self.fields:
            yield "There are no fields."
        if self.tag == "":
            yield "The tag is empty; leave it out for records without one."
        for name in sorted({name for name in self.names if self.names.count(name) > 1}):
            yield f"Two fields are named {name!r}."
        for field in self.fields:
            yield from field.problems()


class Delimited(_Layout):
    """Fields with a ``delimiter`` between them. A field may stand in quotes, and then have delimiters, line ends and
    doubled quotes in it; after the character ``escape`` any character stands for itself. With a ``tag``, which is the
    first thing in the record and no field, only such records are meant."""

    kind: Literal["delimited"] = "delimited"
    delimiter: str = ","
    quote: str | None = '"'
    escape: str | None = None

    def __init__(self, fields: Sequence[Field | str], **settings: Any) -> None:
        super().__init__(**{"fields": fields, **settings})

    def problems(self) -> Iterator[str]:
        yield from super().problems()
        if not self.delimiter or set(self.delimiter) & set("\r\n\0"):
            yield f"The delimiter {self.delimiter!r} must have a character, and no line end."
        marks = {"quote": self.quote, "escape": self.escape}
        for name, mark in marks.items():
            if mark is not None and (len(mark) != 1 or mark in "\r\n\0" or mark in self.delimiter):
                yield f"The {name} {mark!r} must be one character that is no line end and not in the delimiter."
        if self.quote is not None and self.quote == self.escape:
            yield f"The quote and the escape are the same character, {self.quote!r}."
        yield from (
            f"{field.name} has a width, which is for positional records." for field in self.fields if field.width
        )


class Positional(_Layout):
    """Fields of fixed widths, one after the other, after the ``tag`` if there is one. A record is as long as they are
    together; with ``allow_early_termination`` it may be shorter, and what is missing is empty."""

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
    """What is wrong with the records of a definition, and with what it promotes from them."""
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
            found.append(f"The number of records is to be in {flat.count!r}, which is not a field of a trailer.")
        elif counted[0].type is not ValueType.INT:
            found.append(f"The number of records is in {flat.count!r}, which must be an int.")
    return [*found, *_end_problems(flat)]


def _line_problems(flat: FlatFile) -> Iterator[str]:
    """Records are told apart by their tags, before it is known how each is laid out."""
    tags = {flat.record.tag}
    for name, layout in flat.lines.items():
        if not NAME.fullmatch(name) or name in (*flat.record.names, "record", "header", "trailer"):
            yield f"{name!r} cannot be the name of a line: it is no name, or a field of the record has it."
        if flat.record.tag is None or layout.tag is None:
            yield f"{name}: the record and its lines need tags to be told apart."
        elif any(one and (one.startswith(layout.tag) or layout.tag.startswith(one)) for one in tags):
            yield f"{name}: its tag {layout.tag!r} cannot be told from another one."
        if format_marks(layout) != format_marks(flat.record):
            yield f"{name}: it has to be delimited as the record is."
        tags.add(layout.tag)


def format_marks(layout: Delimited | Positional) -> tuple[str | None, ...]:
    """What tells fields apart."""
    return (layout.delimiter, layout.quote, layout.escape) if isinstance(layout, Delimited) else ()


def _promotion_problems(flat: FlatFile) -> Iterator[str]:
    for prop, path in flat.promotions.entries:
        place: Delimited | Positional | None = flat.header if path.startswith(HEADER) else flat.record
        if path.strip() and (place is None or path.removeprefix(HEADER) not in place.names):
            there = "header" if path.startswith(HEADER) else "record"
            yield f"{prop.dotted} is promoted from {path!r}, which is not a field of the {there}."


def _end_problems(flat: FlatFile) -> Iterator[str]:
    try:
        codec = codecs.lookup(flat.encoding)
        if not codec._is_text_encoding:
            raise LookupError
        # Every character of ASCII must be one byte, and the same one wherever it stands.
        plain = "".join(map(chr, range(32, 127)))
        name = codec.name.removesuffix("-sig")
        is_plain = len(plain.encode(name)) == len(plain)
        end = flat.end.encode(name)
    except LookupError:
        yield f"{flat.encoding!r} is not an encoding of text that Python knows."
        return
    except UnicodeEncodeError:
        is_plain, end = True, b""
    if not is_plain:
        yield f"In the encoding {flat.encoding!r} records cannot be told by their bytes; convert the file to UTF-8."
    elif len(flat.end) != 1 or len(end) != 1:
        yield f"The end of a record, {flat.end!r}, must be one character that is one byte."
    elif flat.end.isprintable() and not _is_safe(flat.encoding):
        yield f"In the encoding {flat.encoding!r} the end {flat.end!r} may be a half of another character."


def _is_safe(encoding: str) -> bool:
    """Whether a byte of ASCII is never a part of another character."""
    name = codecs.lookup(encoding).name
    return name.startswith("utf-8") or len(bytes(range(256)).decode(encoding, "replace")) == 256
