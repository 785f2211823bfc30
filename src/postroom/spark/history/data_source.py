"""What is in the MessageBox as tables for notebooks: ``spark.read.format("postroom").load("messages")``.

A task reads a range of a table with a server-side cursor, a few rows at a time. Its memory stays flat whatever the size
of the table. The options ``columns`` and ``where`` say which columns and rows PostgreSQL sends.

The reader does not implement ``pushFilters``: Spark 4.3 keeps a reader that took filters for every later query over the
same DataFrame, which then misses rows (docs/history.md).
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from postroom.errors import DefinitionError, NotAllowed, NotFound, Unavailable
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.messagebox.statements import statement
from postroom.spark.history.tables import TABLES, HistoryTable
from postroom.spark.history.where import Condition, parse_where
from postroom.spark.login import Login

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "postroom"

_PARTITIONS = 8
_MAX_BODY = 1_048_576
_ROWS_AT_A_TIME = 1_000
#: Each may have a body of the largest size that is read.
_BODIES_AT_A_TIME = 64
_OPTIONS = ("table", "path", "url", "home", "user", "columns", "where", "partitions", "maxBody")


def register_history(
    session: SparkSession,
    *,
    url: str | None = None,
    home: str | os.PathLike[str] | None = None,
    user: str | None = None,
) -> None:
    """Register the format ``postroom`` with a session; the arguments are the defaults of its options."""
    # Spark plans in a process of its own, which has neither this one's environment nor its current folder.
    given = {
        "url": url or (None if home else os.environ.get("POSTROOM_DATABASE")),
        "home": str(Path(home or ".").absolute()),
        "user": user,
    }
    registered = type("History", (History,), {"defaults": {name: text for name, text in given.items() if text}})
    session.dataSource.register(registered)


class History(DataSource):
    """Messages, contexts and queues of a MessageBox.

    Options: ``table`` (or the argument of ``load``): messages, contexts or queues. ``url`` of the MessageBox, or
    ``home``, the folder whose embedded one runs, and ``user`` to log in as (default: what was registered). ``columns``,
    separated by commas: those to read (default: all but bodies). ``where``: a filter over the table's columns, which
    PostgreSQL applies. ``partitions``: maximum number of tasks. ``maxBody``: a longer body is null.
    """

    #: What was said when the format was registered.
    defaults: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        columns = self.options.get("columns")
        names = None if columns is None else [name.strip() for name in columns.split(",")]
        self._where()  # an error belongs to load(), not to the first query
        return self._table().schema(names)

    def reader(self, schema: StructType) -> DataSourceReader:
        return HistoryReader(
            login=login_of(self.options, self.defaults),
            table=self._table(),
            columns=schema.fieldNames(),
            where=self._where(),
            partitions=self._number("partitions", _PARTITIONS),
            max_body=self._number("maxBody", _MAX_BODY),
        )

    def _table(self) -> HistoryTable:
        known = {name.lower() for name in _OPTIONS}
        for option in self.options:
            if option.lower() not in known:
                raise DefinitionError(
                    f"There is no option {option!r}.", hint=f"The options are: {', '.join(_OPTIONS)}."
                )
        name = self.options.get("table") or self.options.get("path") or ""
        if name not in TABLES:
            what = f"There is no table {name!r}." if name else "No table is named."
            raise NotFound(what, hint=f'Write load("messages"); the tables are {", ".join(TABLES)}.')
        return TABLES[name]

    def _where(self) -> Condition | None:
        text = self.options.get("where")
        return None if text is None else parse_where(text, self._table())

    def _number(self, option: str, default: int) -> int:
        text = str(self.options.get(option, default))
        if not text.isdecimal() or int(text) < 1:
            raise DefinitionError(f"The option {option} is {text!r}, but must be a number above zero.")
        return int(text)


def login_of(options: Mapping[str, str], defaults: Mapping[str, str]) -> Login:
    """The MessageBox that is meant; NotFound or Unavailable if there is none, or it does not run."""
    user = options.get("user") or defaults.get("user")
    url = options.get("url") or (None if options.get("home") else defaults.get("url"))
    if url:
        return Login(url=url, user=user)
    home = Path(options.get("home") or defaults.get("home") or ".").absolute()
    folder = server_folder(home)
    if not folder.exists():
        raise NotFound(
            f"There is no MessageBox in {home}.",
            why="No url is given, POSTROOM_DATABASE was not set, and no embedded one was ever started there.",
            hint='Say where it is: postroom.spark.register(spark, url="postgresql://…"), or home="…".',
        )
    url = EmbeddedServer(folder).running_url()
    if url is None:
        raise Unavailable(
            f"The MessageBox in {home} does not run.", hint="Start it: postroom up APP --home DIR. Then try again."
        )
    return Login(url=url, user=user)


class Range(InputPartition):
    """What one task reads: from here on, up to there."""

    def __init__(self, start: str | None, end: str | None) -> None:
        super().__init__(None)
        self.start = start
        self.end = end


class HistoryReader(DataSourceReader):
    """Plans in a process of its own beside the driver, reads in the tasks."""

    def __init__(
        self,
        *,
        login: Login,
        table: HistoryTable,
        columns: Sequence[str],
        where: Condition | None = None,
        partitions: int,
        max_body: int,
    ) -> None:
        table.schema(columns)  # names those that are not there
        self._login = login
        self._table = table
        self._columns = tuple(columns)
        self._partitions = partitions
        self._max_body = max_body
        self._where = where

    def partitions(self) -> Sequence[InputPartition]:
        with self._login.connect("history") as connection:
            try:
                # Whoever may not read it is told so now, and not by each of the tasks.
                connection.execute(*self._query(Range(None, None), limit="LIMIT 0"))
                bounds = self._table.bounds(connection, self._partitions)
            except NotAllowed as error:
                raise NotAllowed(
                    f"The login may not read the {self._table.name}.",
                    why=error.why,
                    hint="Administrators may read messages and contexts, operators queues (docs/how-to/security.md).",
                ) from error
        return [Range(start, end) for start, end in zip([None, *bounds], [*bounds, None], strict=True)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Range)
        kinds = [self._table.columns[name] for name in self._columns]
        with (
            self._login.connect("history") as connection,
            connection.transaction(),
            connection.cursor(name="history") as cursor,
        ):
            cursor.execute(*self._query(partition), binary=True)
            at_a_time = _BODIES_AT_A_TIME if self._table.unasked & set(self._columns) else _ROWS_AT_A_TIME
            while rows := cursor.fetchmany(at_a_time):
                arrays = [
                    pa.array(values, type=kind.arrow)
                    for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=list(self._columns))

    def _query(self, range_: Range, limit: str = "") -> tuple[str, list[Any]]:
        selected = ", ".join(self._table.columns[name].selected.format(name) for name in self._columns)
        source = statement(self._table.statement)
        given: list[Any] = []
        if "%(max_body)s" in source:
            source = source.replace("%(max_body)s", "%s")
            given.append(self._max_body)
        conditions = [] if self._where is None else [self._where]
        for operator, bound in ((">=", range_.start), ("<", range_.end)):
            if bound is not None:
                conditions.append((f"place {operator} %s::{self._table.place}", [bound]))
        where = f" WHERE {' AND '.join(text for text, _ in conditions)}" if conditions else ""
        given += [one for _, values in conditions for one in values]
        return f"SELECT {selected} FROM ({source}) AS found{where} {limit}", given
