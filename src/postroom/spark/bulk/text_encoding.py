"""The encoding and the lines of text files that Spark's readers read."""

from __future__ import annotations

import codecs
import json
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from postroom.pipelines import Rows
from postroom.spark.bulk.split_lines import open_decompressed, read_split_lines

_BLOCK = 1 << 20
#: The characters that Java trims.
_BLANK = bytes(range(33))
#: A truncated compressed file raises EOFError, and a corrupt one zlib.error.
READ_ERRORS = (OSError, EOFError, zlib.error)


@dataclass(frozen=True, kw_only=True)
class TextEncoding:
    """The encoding and the line format of text files."""

    name: str = "UTF-8"
    reader_reports: bool = False
    """True if the reader reports rows that it cannot decode as bad."""
    has_lines: bool = False
    """True if every row is one line. Not every line has to be a row."""
    separator: bytes | None = None
    has_header: bool = False
    comment: bytes = b""
    has_blank_rows: bool = False
    has_arrays: bool = False
    """True if a line can be an array of rows."""

    @classmethod
    def from_options(cls, format: str, options: Mapping[str, str], pipeline: Rows) -> TextEncoding | None:
        """Return the encoding of a format, or None if its bytes are not decoded."""
        lower_options = {name.lower(): value for name, value in options.items()}
        encoding = lower_options.get("encoding") or lower_options.get("charset")
        separator = lower_options.get("linesep", "").encode()
        is_one_row = "true" in (lower_options.get("multiline", "").lower(), lower_options.get("wholetext", "").lower())
        has_line_rows = (
            not is_one_row and len(separator) < 2 and not (encoding or "").lower().startswith(("utf-16", "utf-32"))
        )
        match format:
            case "csv":
                return cls(
                    name=encoding or "UTF-8",
                    has_lines=has_line_rows,
                    separator=separator or None,
                    has_header=lower_options.get("header", "").lower() == "true",
                    comment=lower_options.get("comment", "").encode(),
                )
            case "json" | "xml":
                is_json = format == "json"
                return cls(
                    name=encoding or "UTF-8",
                    reader_reports=encoding is None or (is_json and not is_one_row),
                    has_lines=is_json and has_line_rows,
                    separator=separator or None,
                    has_arrays=is_json and has_line_rows,
                )
            case "text" if pipeline.column is None:
                return cls(has_lines=has_line_rows, separator=separator or None, has_blank_rows=True)
        return None

    def can_decode(self, data: bytes) -> bool | None:
        """Return True if the bytes can be decoded, or None if Python does not know the encoding."""
        try:
            data.decode(self.name)
        except UnicodeDecodeError:
            return False
        except LookupError:
            return None
        return True

    def rows(self, path: Path, start: int, length: int) -> Iterator[tuple[int, bytes]]:
        """Yield the line of each row of a split, with its index in the split."""
        header = self.has_header and start == 0
        for index, line in read_split_lines(path, start, length, self.separator):
            if self.has_blank_rows or (line.strip(_BLANK) and not (self.comment and line.startswith(self.comment))):
                if not header:
                    for _ in range(_count_elements(line) if self.has_arrays else 1):
                        yield index, line
                header = False

    def can_decode_file(self, path: Path) -> bool:
        """Return True if the whole file can be decoded. Return False also if Python cannot read it."""
        with suppress(LookupError, UnicodeDecodeError, *READ_ERRORS), open_decompressed(path) as stream:
            decoder = codecs.getincrementaldecoder(self.name)()
            while block := stream.read(_BLOCK):
                decoder.decode(block)
            decoder.decode(b"", final=True)
            return True
        return False


def _count_elements(line: bytes) -> int:
    """Return the number of rows of a line of a JSON file."""
    if not line.lstrip(_BLANK).startswith(b"["):
        return 1
    try:
        return len(json.loads(line))
    except ValueError:
        return 1
