"""The Spark reader as a user declares it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from postroom.adapters.definition import AdapterDefinition
from postroom.adapters.file.definition import File
from postroom.adapters.spark_schema import Column, read_columns

Option = str | bool | int | float

#: The formats of files, which are claimed one by one; every other format is a stream with offsets of its own.
FILE_FORMATS = ("csv", "json", "xml", "parquet", "orc", "text", "binaryFile")

#: What the readers of some formats yield, whatever the files or topics are.
_FIXED = {
    "text": "value string",
    "binaryfile": "path string, modificationTime timestamp, length bigint, content binary",
    "kafka": "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int",
    "rate": "timestamp timestamp, value bigint",
    "rate-micro-batch": "timestamp timestamp, value bigint",
}
#: Which column of theirs is the body.
_BODIES = {"text": "value", "binaryfile": "content", "kafka": "value"}

#: Options for files that would have some of them, or rows, left out without a word, or that are ours to set.
_NOT_ALLOWED = {
    "path": "it is the second argument",
    "paths": "there is one folder",
    "columnnameofcorruptrecord": "bad rows are told by a column of our own",
    "pathglobfilter": "write pattern=...",
    "recursivefilelookup": "a location watches one folder",
    "modifiedbefore": "files are taken when they have settled",
    "modifiedafter": "files are taken when they have settled",
    "ignorecorruptfiles": "the rest of a file that cannot be read would be lost",
    "ignoremissingfiles": "files that are gone would be taken for read",
    "badrecordspath": "bad rows are suspended",
    "maxfilespertrigger": "files are claimed as they come",
    "__globpaths__": "files are claimed one by one",
}
_NEVER_ALLOWED = {"checkpointlocation": "it is kept in the home folder"}

CORRUPT = "_corrupt_record"
_RESERVED = (CORRUPT, "_metadata")


class SparkReader(AdapterDefinition):
    """Anything that Spark reads: ``adapters.SparkReader("csv", "in/big", schema="id bigint, region string",
    options={"header": True})``, ``adapters.SparkReader("kafka", options={"subscribe": "orders", ...})``.

    Files (csv, json, xml, parquet, orc, text, binaryFile) are claimed in the folder ``path`` like those of
    ``adapters.File``, with the same ``pattern``, ``settle``, ``archive``, ``private_folder`` and
    ``trusted_senders``; then Spark's own reader splits them over
    all tasks. Any other format is a stream that Spark reads by its offsets, and has no path.

    ``options`` are the reader's, and ``schema`` is what it yields, in Spark's words. A location stops when a file has
    more than ``bad_rows`` bad rows, or a larger ``bad_share`` of them (of 0 to 1, looked at from the 1,000th row on);
    None is no limit.
    """

    transport_type: ClassVar[str] = "SPARK-READER"
    reads_rows: ClassVar[bool] = True

    kind: Literal["spark_reader"] = "spark_reader"
    format: str
    path: str | None
    options: dict[str, Option]
    columns: str | None
    pattern: str
    settle: float
    archive: str | None
    private_folder: str | None
    trusted_senders: bool
    bad_rows: int | None
    bad_share: float | None

    def __init__(
        self,
        format: str,
        path: str | os.PathLike[str] | None = None,
        *,
        options: Mapping[str, Option] | None = None,
        schema: str | None = None,
        pattern: str = "*",
        settle: float = 1.0,
        archive: str | os.PathLike[str] | None = None,
        private_folder: str | os.PathLike[str] | None = None,
        trusted_senders: bool = False,
        bad_rows: int | None = 1_000,
        bad_share: float | None = None,
        columns: str | None = None,
        kind: Literal["spark_reader"] = "spark_reader",
    ) -> None:
        super().__init__(
            format=_known(format),
            path=None if path is None else os.fspath(path),
            options=dict(options or {}),
            # A model has an attribute ``schema`` of its own, so that it is kept under another name.
            columns=columns if schema is None else schema,
            pattern=pattern,
            settle=settle,
            archive=None if archive is None else os.fspath(archive),
            private_folder=None if private_folder is None else os.fspath(private_folder),
            trusted_senders=trusted_senders,
            bad_rows=bad_rows,
            bad_share=bad_share,
            kind=kind,
        )

    @property
    def reads_files(self) -> bool:
        """Whether it claims files; otherwise it follows a stream."""
        return self.format in FILE_FORMATS

    @property
    def is_row_stream(self) -> bool:
        return not self.reads_files

    @property
    def watched_folder(self) -> File | None:
        return self.watched if self.reads_files else None

    @property
    def watched(self) -> File:
        """The folder that files are claimed in; only if it reads files."""
        assert self.path is not None
        return File(
            self.path,
            pattern=self.pattern,
            settle=self.settle,
            archive=self.archive,
            private_folder=self.private_folder,
            trusted_senders=self.trusted_senders,
        )

    @property
    def known_columns(self) -> tuple[Column, ...] | None:
        """What it yields, as far as that can be known before it runs."""
        text = self.columns or _FIXED.get(self.format.lower())
        return None if text is None else read_columns(text)

    @property
    def body_column(self) -> str | None:
        """The column that is the body unless the pipeline says otherwise."""
        return _BODIES.get(self.format.lower())

    @property
    def tells_bad_rows(self) -> bool:
        """Whether the reader can say of a row that it cannot be read."""
        return self.format in ("csv", "json", "xml")

    def problems(self) -> list[str]:
        found = []
        if not self.format.strip():
            found.append("format is empty; write csv, json, parquet, or whatever Spark reads.")
        if self.reads_files:
            found += ["path is missing: which folder?"] if self.path is None else self.watched.problems()
        elif {self.path, self.archive, self.private_folder} != {None} or self.trusted_senders or self.pattern != "*":
            found.append(
                "path, pattern, archive, private_folder and trusted_senders are for files, and"
                f" {self.format!r} is read as a stream."
            )
        found += [f"option {name!r} cannot be set: {why}." for name, why in self._refused()]
        mode = str(self._option("mode") or "PERMISSIVE")
        if self.tells_bad_rows and mode.upper() != "PERMISSIVE":
            found.append(f"option 'mode' is {mode!r}, but bad rows are suspended; that needs PERMISSIVE.")
        if self.format == "xml" and not self._option("rowTag"):
            found.append("option 'rowTag' is missing: which element is a row?")
        if self.bad_rows is not None and self.bad_rows < 0:
            found.append(f"bad_rows is {self.bad_rows}, but must be 0 or more.")
        if self.bad_share is not None and not 0 <= self.bad_share <= 1:
            found.append(f"bad_share is {self.bad_share:g}, but must be between 0 and 1.")
        return found + self._schema_problems()

    def address(self, home: Path) -> str:
        return self.watched.address(home) if self.reads_files else f"spark:{self.format}"

    def _option(self, wanted: str) -> Option | None:
        """Spark does not tell the case of options."""
        return next((value for name, value in self.options.items() if name.lower() == wanted.lower()), None)

    def _refused(self) -> list[tuple[str, str]]:
        refused = {**_NEVER_ALLOWED, **(_NOT_ALLOWED if self.reads_files else {})}
        return [(name, refused[name.lower()]) for name in self.options if name.lower() in refused]

    def _schema_problems(self) -> list[str]:
        if self.columns is None:
            if self.reads_files and self.format.lower() not in _FIXED:
                return [f"schema is missing: {self.format} files are read by one, such as 'id bigint, region string'."]
            return []
        if self.reads_files and self.format.lower() in _FIXED:
            return [f"schema cannot be given: {self.format} files always have {_FIXED[self.format.lower()]!r}."]
        try:
            names = [column.name.lower() for column in read_columns(self.columns)]
        except ValueError as error:
            return [str(error)]
        return [
            f"schema: {name!r} is a name of Spark's own; call the column something else."
            for name in names
            if name in _RESERVED
        ]


def _known(format: str) -> str:
    """The file formats in one spelling; Spark does not tell their case."""
    spelling = {name.lower(): name for name in FILE_FORMATS}
    return spelling.get(format.lower(), format) if isinstance(format, str) else format
