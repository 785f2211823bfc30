"""Read the MessageBox as tables in notebooks: ``spark.read.format("postroom").load("messages")``.

A task reads a range of a table with a server-side cursor, a few rows at a time. Its memory does not grow with the
size of the table. The options ``columns`` and ``where`` select the columns and rows that PostgreSQL sends.

The reader does not implement ``pushFilters``: Spark 4.3 uses a reader that has taken filters for every later query of
the same DataFrame, which then misses rows (docs/explanation/spark.md).
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
from postroom.messagebox.connection import Login
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.messagebox.history import Condition, build_history_query
from postroom.spark.history.history_tables import TABLES, HistoryTable, parse_where

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "postroom"

_PARTITIONS = 8
_MAX_BODY = 1_048_576
_BATCH_ROWS = 1_000
#: A smaller batch if bodies are read, because each may have the maximum size.
_BATCH_BODIES = 64
_OPTIONS = ("table", "path", "url", "home", "user", "columns", "where", "partitions", "maxBody")


def register_history(
    session: SparkSession, url: str | None, home: str | os.PathLike[str] | None, user: str | None
) -> None:
    """Register the format ``postroom`` with a session (see ``postroom.spark.register``)."""
    # Spark plans in a separate process without the environment and the current folder of this one.
    defaults = {
        "url": url or (None if home else os.environ.get("POSTROOM_DATABASE")),
        "home": str(Path(home or ".").absolute()),
        "user": user,
    }
    registered = type("History", (History,), {"defaults": {name: text for name, text in defaults.items() if text}})
    session.dataSource.register(registered)


class History(DataSource):
    """Messages, contexts and queues of a MessageBox.

    | option | meaning | default |
    |---|---|---|
    | ``table``, or the argument of ``load`` | messages, contexts or queues | required |
    | ``url`` | address of the MessageBox | as registered |
    | ``home`` | folder of a running embedded MessageBox | as registered |
    | ``user`` | user to log in as | as registered |
    | ``columns`` | names of columns, separated by commas | all except bodies |
    | ``where`` | filter over the columns, applied by PostgreSQL | all rows |
    | ``partitions`` | maximum number of tasks | 8 |
    | ``maxBody`` | a longer body (in bytes) is null | 1048576 |
    """

    #: The defaults of the options, from ``register_history``.
    defaults: ClassVar[Mapping[str, str]] = {}

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> str:
        columns = self.options.get("columns")
        names = None if columns is None else [name.strip() for name in columns.split(",")]
        self._where()  # raises an error at load(), not at the first query
        return self._table().schema(names)

    def reader(self, schema: StructType) -> DataSourceReader:
        return HistoryReader(
            login=select_login(self.options, self.defaults),
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
            what = f"There is no table {name!r}." if name else "The table is missing."
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


def select_login(options: Mapping[str, str], defaults: Mapping[str, str]) -> Login:
    """Return the login of the selected MessageBox. Raise NotFound if it does not exist, Unavailable if it is not
    running."""
    user = options.get("user") or defaults.get("user")
    url = options.get("url") or (None if options.get("home") else defaults.get("url"))
    if url:
        return Login(url=url, user=user)
    home = Path(options.get("home") or defaults.get("home") or ".").absolute()
    folder = server_folder(home)
    if not folder.exists():
        raise NotFound(
            f"There is no MessageBox in {home}.",
            why="No url is given, POSTROOM_DATABASE is not set, and no embedded MessageBox was started there.",
            hint='Give its address: postroom.spark.register(spark, url="postgresql://…"), or home="…".',
        )
    url = EmbeddedServer(folder).running_url()
    if url is None:
        raise Unavailable(
            f"The MessageBox in {home} is not running.", hint="Start it: postroom up APP --home DIR. Then try again."
        )
    return Login(url=url, user=user)


class Range(InputPartition):
    """The range of a table that one task reads."""

    def __init__(self, start: str | None, end: str | None) -> None:
        super().__init__(None)
        self.start = start
        self.end = end


class HistoryReader(DataSourceReader):
    """Plans in a separate process next to the driver, and reads in the tasks."""

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
        table.schema(columns)  # raises if a column does not exist
        self._login = login
        self._table = table
        self._columns = tuple(columns)
        self._partitions = partitions
        self._max_body = max_body
        self._where = where

    def partitions(self) -> Sequence[InputPartition]:
        with self._login.connect("history") as connection:
            try:
                # A missing permission is reported now, and not by each task.
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
            batch_size = _BATCH_BODIES if self._table.costly & set(self._columns) else _BATCH_ROWS
            while rows := cursor.fetchmany(batch_size):
                arrays = [
                    pa.array(values, type=kind.arrow)
                    for values, kind in zip(zip(*rows, strict=True), kinds, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, names=list(self._columns))

    def _query(self, range_: Range, limit: str = "") -> tuple[str, list[Any]]:
        selected = [self._table.columns[name].selected.format(name) for name in self._columns]
        conditions = [] if self._where is None else [self._where]
        for operator, bound in ((">=", range_.start), ("<", range_.end)):
            if bound is not None:
                conditions.append((f"range_key {operator} %s::{self._table.range_key_type}", [bound]))
        return build_history_query(self._table.name, selected, conditions, max_body=self._max_body, limit=limit)
