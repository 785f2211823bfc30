"""The definition of the adapter that reads rows with Spark."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import AfterValidator, Field

from postroom.adapters.contract import ReceivedBy, ReceiveDefinition
from postroom.adapters.file.definition import File
from postroom.adapters.file.names import DEFAULT_NAME
from postroom.adapters.spark_schema import Column, parse_columns
from postroom.secrets.references import Secret, find_secret_problems
from postroom.stored_definitions import OptionalPath

Option = str | bool | int | float | Secret

#: The file formats, whose files are claimed one by one. Every other format is a stream with offsets.
FILE_FORMATS = ("csv", "json", "xml", "parquet", "orc", "text", "binaryFile")

#: The fixed schemas of some formats.
_FIXED = {
    "text": "value string",
    "binaryfile": "path string, modificationTime timestamp, length bigint, content binary",
    "kafka": "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp,"
    " timestampType int",
    "rate": "timestamp timestamp, value bigint",
    "rate-micro-batch": "timestamp timestamp, value bigint",
}
#: The body column of these formats.
_BODIES = {"text": "value", "binaryfile": "content", "kafka": "value"}

#: Options for files that would skip files or rows silently, or that Postroom sets itself.
_NOT_ALLOWED = {
    "path": "it is the second argument",
    "paths": "there is one folder",
    "columnnameofcorruptrecord": "Postroom marks bad rows with its own column",
    "pathglobfilter": "write pattern=...",
    "recursivefilelookup": "a location watches one folder",
    "modifiedbefore": "files are received when they have settled",
    "modifiedafter": "files are received when they have settled",
    "ignorecorruptfiles": "the rest of a corrupt file would be lost",
    "ignoremissingfiles": "missing files would count as received",
    "badrecordspath": "bad rows are suspended",
    "maxfilespertrigger": "files are claimed as they arrive",
    "__globpaths__": "files are claimed one by one",
}
_NEVER_ALLOWED = {"checkpointlocation": "it is stored in the home folder"}

CORRUPT = "_corrupt_record"
_RESERVED = (CORRUPT, "_metadata")


def _normalise_format(format: str) -> str:
    """Return the canonical spelling of a file format. Formats are case-insensitive in Spark."""
    return {name.lower(): name for name in FILE_FORMATS}.get(format.lower(), format)


class SparkReader(ReceiveDefinition):
    """Every format that Spark reads: ``adapters.SparkReader("csv", "in/big", schema="id bigint, region string",
    options={"header": True})``, ``adapters.SparkReader("kafka", options={"subscribe": "orders", ...})``.

    Files (csv, json, xml, parquet, orc, text, binaryFile) are claimed in the folder ``path`` like those of
    ``adapters.File``, with the same ``pattern``, ``settle``, ``archive``, ``private_folder`` and ``trusted_senders``.
    Then the reader of Spark splits them over all tasks. Every other format is a stream that Spark reads by offsets, and
    has no path.

    ``options`` are the options of the reader; an option with a password or a key is a ``postroom.secret(...)``.
    ``schema`` is the DDL schema of its rows. A location stops when a
    file has more than ``bad_rows`` bad rows, or a larger share of bad rows than ``bad_share`` (0 to 1, checked from the
    1,000th row on). None means no limit.
    """

    transport_type: ClassVar[str] = "SPARK-READER"
    received_by: ClassVar[ReceivedBy] = ReceivedBy.PIPELINE
    reads_rows: ClassVar[bool] = True
    can_be_isolated: ClassVar[bool] = False

    kind: Literal["spark_reader"] = "spark_reader"
    format: Annotated[str, AfterValidator(_normalise_format)] = Field(kw_only=False)
    path: OptionalPath = Field(default=None, kw_only=False, validate_default=True)
    options: Mapping[str, Option] = Field(default_factory=dict)
    # A pydantic model has an attribute ``schema``, so the field has another name.
    columns: str | None = Field(default=None, alias="schema")
    pattern: str = "*"
    settle: float = 1.0
    archive: OptionalPath = Field(default=None, validate_default=True)
    private_folder: OptionalPath = Field(default=None, validate_default=True)
    trusted_senders: bool = False
    bad_rows: int | None = 1_000
    bad_share: float | None = None

    @property
    def reads_files(self) -> bool:
        """True if it claims files. Otherwise it reads a stream."""
        return self.format in FILE_FORMATS

    @property
    def is_row_stream(self) -> bool:
        return not self.reads_files

    @property
    def watched_folder(self) -> File | None:
        """The folder that files are claimed in, or None if it reads a stream."""
        if not self.reads_files or self.path is None:
            return None
        return File(
            self.path,
            name=DEFAULT_NAME,
            pattern=self.pattern,
            settle=self.settle,
            archive=self.archive,
            private_folder=self.private_folder,
            trusted_senders=self.trusted_senders,
        )

    @property
    def known_columns(self) -> tuple[Column, ...] | None:
        """The columns of the rows, or None if they are not known before the reader runs."""
        text = self.columns or _FIXED.get(self.format.lower())
        return None if text is None else parse_columns(text)

    @property
    def body_column(self) -> str | None:
        """The default body column."""
        return _BODIES.get(self.format.lower())

    @property
    def marks_bad_rows(self) -> bool:
        """True if the reader can mark rows that cannot be parsed."""
        return self.format in ("csv", "json", "xml")

    def problems(self) -> list[str]:
        found = []
        if not self.format.strip():
            found.append("format is empty; write csv, json, parquet, or another format that Spark reads.")
        if self.reads_files:
            folder = self.watched_folder
            found += ["path is missing; write the folder to watch."] if folder is None else folder.problems()
        elif {self.path, self.archive, self.private_folder} != {None} or self.trusted_senders or self.pattern != "*":
            found.append(
                "path, pattern, archive, private_folder and trusted_senders are for files, and"
                f" {self.format!r} is read as a stream."
            )
        found += [f"option {name!r} cannot be set: {why}." for name, why in self._find_rejected_options()]
        found += find_secret_problems("option", self.options)
        mode = str(self._option("mode") or "PERMISSIVE")
        if self.marks_bad_rows and mode.upper() != "PERMISSIVE":
            found.append(f"option 'mode' is {mode!r}, but bad rows are suspended; that needs PERMISSIVE.")
        if self.format == "xml" and not self._option("rowTag"):
            found.append("option 'rowTag' is missing; write the name of the element that is a row.")
        if self.bad_rows is not None and self.bad_rows < 0:
            found.append(f"bad_rows is {self.bad_rows}, but must be 0 or more.")
        if self.bad_share is not None and not 0 <= self.bad_share <= 1:
            found.append(f"bad_share is {self.bad_share:g}, but must be between 0 and 1.")
        return found + self._schema_problems()

    def receive_problems(self) -> list[str]:
        return [] if self.watched_folder is None else self.watched_folder.receive_problems()

    def address(self, home: Path) -> str:
        return f"spark:{self.format}" if self.watched_folder is None else self.watched_folder.address(home)

    def _option(self, wanted: str) -> Option | None:
        """Return an option by name. Option names are case-insensitive in Spark."""
        return next((value for name, value in self.options.items() if name.lower() == wanted.lower()), None)

    def _find_rejected_options(self) -> list[tuple[str, str]]:
        rejected = {**_NEVER_ALLOWED, **(_NOT_ALLOWED if self.reads_files else {})}
        return [(name, rejected[name.lower()]) for name in self.options if name.lower() in rejected]

    def _schema_problems(self) -> list[str]:
        if self.columns is None:
            if self.reads_files and self.format.lower() not in _FIXED:
                return [f"schema is missing: {self.format} files need a schema, such as 'id bigint, region string'."]
            return []
        if self.reads_files and self.format.lower() in _FIXED:
            return [f"schema cannot be set: {self.format} files always have {_FIXED[self.format.lower()]!r}."]
        try:
            names = [column.name.lower() for column in parse_columns(self.columns)]
        except ValueError as error:
            return [str(error)]
        return [
            f"schema: {name!r} is reserved by Spark; choose another name for the column."
            for name in names
            if name in _RESERVED
        ]
