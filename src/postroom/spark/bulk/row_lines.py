"""Find the lines of rows in their file: the bytes as they are there, and the number of the line."""

from __future__ import annotations

from functools import cached_property, lru_cache
from pathlib import Path

from postroom.pipelines.rows.batch import SourceLine
from postroom.spark.bulk.split_lines import can_find_lines, count_line_ends
from postroom.spark.bulk.text_encoding import READ_ERRORS, TextEncoding


class RowLines:
    """The lines of a split by the numbers of their rows, from 1. Nothing is read before the first search.

    It reads forward, and keeps the lines of the last two batches: a batch is published after the next one was read."""

    def __init__(self, encoding: TextEncoding, path: Path, start: int, length: int) -> None:
        self.encoding = encoding
        self._path = path
        self._start = start
        has_lines = encoding.has_lines and can_find_lines(path)
        self._rows = encoding.rows(path, start, length) if has_lines else None
        self._last = 0
        self._kept: dict[int, tuple[int, bytes]] = {}
        self._batches = (1, 1)

    def start_batch(self, first: int) -> None:
        """Start with the next batch, whose first row has the number ``first``."""
        self._batches = self._batches[1], first
        for number in [number for number in self._kept if number < self._batches[0]]:
            del self._kept[number]

    def find(self, number: int) -> SourceLine | None:
        """Return the line of a row, or None if the rows of the file are not lines."""
        while self._rows is not None and self._last < number:
            try:
                line = next(self._rows)
            except (StopIteration, *READ_ERRORS):
                self.close()
                break
            self._last += 1
            if self._last >= self._batches[0]:
                self._kept[self._last] = line
        found = self._kept.get(number)
        return None if found is None else self._to_line(*found)

    def close(self) -> None:
        """Find nothing any more: the lines are not those of the rows."""
        self._rows = None
        self._kept.clear()

    @cached_property
    def can_decode_file(self) -> bool:
        """True if the whole file can be decoded."""
        return self.encoding.can_decode_file(self._path)

    def _to_line(self, index: int, data: bytes) -> SourceLine | None:
        is_text = self.encoding.can_decode(data)
        if is_text is None:
            return None
        text = data.decode(self.encoding.name) if is_text else None
        counter = _get_line_counter(self._path, self.encoding.separator)
        return SourceLine(number=counter.count(self._start) + index + 1, data=data, text=text)


class _LineCounter:
    """Counts the lines before a split. The splits of a file come mostly in order, so a worker reads the file once."""

    def __init__(self, path: Path, separator: bytes | None) -> None:
        self._path = path
        self._separator = separator
        self._position = self._count = 0

    def count(self, position: int) -> int:
        """Return the number of lines that end before a position."""
        if position < self._position:
            self._position = self._count = 0
        if position > self._position:
            self._count += count_line_ends(self._path, self._position, position, self._separator)
            self._position = position
        return self._count


@lru_cache(maxsize=4)
def _get_line_counter(path: Path, separator: bytes | None) -> _LineCounter:
    return _LineCounter(path, separator)
