"""Write a batch into a table by JDBC: the tasks stage the rows, and the driver merges them by message id.

| step | after a crash during the step | if the step runs twice |
|---|---|---|
| prepare the table | it exists, or not | it is not changed |
| create the staging table of this attempt | an empty table that the next attempt drops | it is created again |
| stage the rows | rows that no statement reads | the rows of a task are staged twice, and merged once |
| merge the rows | the table has all of them or none | existing rows stay |
| drop the staging tables of the batch | the next attempt drops them | they were dropped before |

The connections are those of Spark, so drivers, logins and dialects are the same as in its JDBC writer.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from postroom.adapters import SparkTable
from postroom.errors import DefinitionError, Unavailable
from postroom.messagebox.sinks.sink_batches import SinkBatch
from postroom.spark.sinks.row_format import row_rejection
from postroom.spark.sinks.task import SinkTask

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

KEY = "message_id"
#: The task that staged a row, and the number of its message in the queue. Only staging tables have these columns.
TASK = "postroom_task"
SEQ = "postroom_seq"

#: The classes of SQLSTATE that a row causes: data exceptions, and violated constraints.
_ABOUT_ROWS = ("22", "23")
_KEY_TYPE = "VARCHAR(36)"
#: The types of text for databases where Spark's dialect limits its length.
_TEXT_TYPES = {"oracle": "CLOB"}
_log = logging.getLogger(__name__)

_STAGING_FIELDS = (pa.field(TASK, pa.int64()), pa.field(SEQ, pa.int64()))


class StatementFailed(Exception):
    """An error that the database returned for a statement."""


class RowsRejected(StatementFailed):
    """The database does not accept a row of the statement."""


def to_statement_error(message: str, state: str) -> StatementFailed:
    """Return the error for an SQLSTATE, which may be empty."""
    kind = RowsRejected if state.startswith(_ABOUT_ROWS) else StatementFailed
    return kind(f"{message} (SQLSTATE {state})" if state else message)


@contextmanager
def connect_jdbc(session: SparkSession, url: str, options: Mapping[str, str]) -> Iterator[Database]:
    """Open a connection for the block. Errors of the database in the block become StatementFailed."""
    jvm: Any = session._jvm
    jdbc: Any = jvm.org.apache.spark.sql.execution.datasources.jdbc
    dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(url)
    # The name of the table is required, but a connection does not use it.
    settings = jdbc.JDBCOptions(jvm.PythonUtils.toScalaMap({**options, "url": url, "dbtable": "none"}))
    try:
        with _translate_errors(session):
            connection = dialect.createConnectionFactory(settings).apply(-1)
    except StatementFailed as error:
        raise Unavailable("The database of the table cannot be reached.", why=str(error)) from error
    try:
        with _translate_errors(session):
            yield Database(session, dialect, connection, _TEXT_TYPES.get(url.split(":")[1]))
    finally:
        # Some databases do not close a connection in a transaction.
        with suppress(Exception):
            connection.rollback()
        with suppress(Exception):
            connection.close()


@contextmanager
def _translate_errors(session: SparkSession) -> Iterator[None]:
    from py4j.java_gateway import is_instance_of
    from py4j.protocol import Py4JJavaError

    try:
        yield
    except Py4JJavaError as error:
        raised = error.java_exception
        if is_instance_of(session._sc._gateway, raised, "java.sql.SQLException"):
            message = str(raised.getMessage()).strip().partition("\n")[0]
            raise to_statement_error(message, str(raised.getSQLState() or "")) from None
        raise


class Database:
    """A connection. Each statement is a separate transaction."""

    def __init__(self, session: SparkSession, dialect: Any, connection: Any, text_type: str | None) -> None:
        self._session = session
        self._dialect = dialect
        self._connection = connection
        self._text_type = text_type

    def prepare(self, table: str, schema: StructType) -> Mapping[str, str]:
        """Return the columns of the table by those of the rows, all quoted. Create the table if it is missing. Raise
        DefinitionError if an existing one lacks a column or has no unique message_id."""
        try:
            existing = self._columns(table)
        except StatementFailed:
            # The table is probably missing. If the problem is another one, CREATE TABLE reports it.
            self._execute(self._create(table, schema, [KEY]))
            existing = self._columns(table)
        columns = {}
        for field in schema:
            name = next((column for column in existing if column == field.name), None)
            name = name or next((column for column in existing if column.lower() == field.name.lower()), None)
            if name is None:
                raise DefinitionError(
                    f"The table {table} has no column {field.name}.",
                    hint=f"Add it, or let Postroom create the table. Its columns are: {', '.join(existing)}.",
                )
            columns[self._quote(field.name)] = self._quote(name)
        if not self._is_unique(table, columns[self._quote(KEY)]):
            raise DefinitionError(
                f"The table {table} has no unique index on {KEY} alone.",
                why="Without it a repeated row would be inserted twice.",
                hint=f"Run: ALTER TABLE {table} ADD UNIQUE ({columns[self._quote(KEY)]})",
            )
        if not self._connection.getMetaData().supportsTransactions():
            raise DefinitionError(
                f"The database of the table {table} has no transactions.",
                hint="Use adapters.SparkSink('jdbc', ...), which is at least once.",
            )
        return columns

    def create_staging(self, table: str, schema: StructType) -> None:
        """Create an empty table for the rows of an attempt. Drop one that was left by an earlier try."""
        with suppress(StatementFailed):
            self._execute(f"DROP TABLE {table}")
        self._execute(self._create(table, schema, [KEY, TASK, SEQ]))

    def merge(self, table: str, columns: Mapping[str, str], staging: str, of: tuple[int, int] | None) -> int:
        """Add the staged rows that the table does not have, all or none. Return the number of added rows."""
        key, task, seq = map(self._quote, (KEY, TASK, SEQ))
        return self._execute(merge_statement(table, staging, columns, key=key, task=task, seq=seq, of=of))

    def read_staged(self, staging: str) -> list[int]:
        """Return the numbers of the messages whose rows are staged."""
        seq = self._quote(SEQ)
        rows = self._query(f"SELECT DISTINCT {seq} FROM {staging} ORDER BY {seq}")
        return [int(number or 0) for (number,) in _read(rows, 1)]

    def drop_staging(self, prefix: str, table: str, *, up_to: int) -> None:
        """Drop the staging tables in the schema of a table: those with the prefix and a number up to ``up_to``.

        The session of a killed process may drop them at the same time. Raise StatementFailed if one is left."""
        failure: StatementFailed | None = None
        for name in self._find_staging(prefix, table, up_to):
            try:
                self._execute(f"DROP TABLE {name}")
            except StatementFailed as error:
                failure = error
        if failure is not None and self._find_staging(prefix, table, up_to):
            raise failure

    def _find_staging(self, prefix: str, table: str, up_to: int) -> list[str]:
        catalog, schema, stored = self._locate(re.sub(r"[^.]+$", prefix, table))
        tables = self._connection.getMetaData().getTables(catalog, schema, f"{stored}%", None)
        numbers = {name: name[len(prefix) :] for (name,) in _read(tables, "TABLE_NAME") if name}
        return [
            re.sub(r"[^.]+$", name, table)
            for name, number in numbers.items()
            if number.isdecimal() and int(number) <= up_to
        ]

    def _execute(self, statement: str) -> int:
        with _translate_errors(self._session):
            prepared = self._connection.createStatement()
            try:
                return int(prepared.executeUpdate(statement))
            finally:
                prepared.close()

    def _query(self, statement: str) -> Any:
        with _translate_errors(self._session):
            return self._connection.createStatement().executeQuery(statement)

    def _columns(self, table: str) -> list[str]:
        rows = self._query(f"SELECT * FROM {table} WHERE 1 = 0")
        metadata = rows.getMetaData()
        names = [str(metadata.getColumnName(n + 1)) for n in range(metadata.getColumnCount())]
        rows.close()
        return names

    def _is_unique(self, table: str, key: str) -> bool:
        catalog, schema, name = self._locate(table)
        rows = self._connection.getMetaData().getIndexInfo(catalog, schema, name, True, True)
        indexes: dict[str | None, list[str]] = {}
        for index, column in _read(rows, "INDEX_NAME", "COLUMN_NAME"):
            if column is not None:
                indexes.setdefault(index, []).append(self._quote(column))
        return [key] in indexes.values()

    def _locate(self, table: str) -> tuple[str | None, str | None, str]:
        """Return the catalogue, schema and name of a table as the database has stored them."""
        metadata = self._connection.getMetaData()
        if metadata.storesUpperCaseIdentifiers():
            table = table.upper()
        elif metadata.storesLowerCaseIdentifiers():
            table = table.lower()
        before, _, name = table.rpartition(".")
        catalog = self._connection.getCatalog()
        if not metadata.supportsSchemasInTableDefinitions():
            return before or catalog, None, name
        return catalog, before or self._connection.getSchema(), name

    def _create(self, table: str, schema: StructType, key: list[str]) -> str:
        columns = [
            f"{self._quote(field.name)} {self._type(field.name, field.dataType)}"
            + (" NOT NULL" if field.name in key else "")
            for field in schema
        ]
        return f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({', '.join(map(self._quote, key))}))"

    def _type(self, name: str, data_type: DataType) -> str:
        from pyspark.sql.types import StringType

        if name == KEY:
            return _KEY_TYPE
        if isinstance(data_type, StringType) and self._text_type is not None:
            return self._text_type
        jvm: Any = self._session._jvm
        wanted = jvm.org.apache.spark.sql.types.DataType.fromJson(data_type.json())
        found = self._dialect.getJDBCType(wanted)
        if found.isEmpty():
            found = jvm.org.apache.spark.sql.execution.datasources.jdbc.JdbcUtils.getCommonJDBCType(wanted)
        if found.isEmpty():
            raise DefinitionError(f"The column {name} has the type {data_type.simpleString()}, which has no JDBC type.")
        return str(found.get().databaseTypeDefinition())

    def _quote(self, name: str) -> str:
        return str(self._dialect.quoteIdentifier(name))


def _read(rows: Any, *columns: str | int) -> list[list[str | None]]:
    """Return the texts of columns of a result."""
    found = []
    while rows.next():
        found.append([rows.getString(column) for column in columns])
    rows.close()
    return found


def merge_statement(
    target: str, staging: str, columns: Mapping[str, str], *, key: str, task: str, seq: str, of: tuple[int, int] | None
) -> str:
    """Return the statement that merges staged rows into a table by message id.

    It does the work of MERGE … WHEN NOT MATCHED THEN INSERT in SQL that every database accepts. The syntax of MERGE
    differs almost everywhere, and MySQL does not have it. ``columns`` maps the columns of the staging table to those of
    the target. ``key``, ``task`` and ``seq`` are columns of the staging table. All names are quoted for the database.
    ``of`` is the first and the last message number to merge.

    A task that was lost after its commit has staged its rows twice, under two task numbers. A message that reached the
    port in two ways has two message numbers. The lowest number is merged.
    """
    before = f"e.{task} < s.{task} OR e.{task} = s.{task} AND e.{seq} < s.{seq}"
    conditions = [
        f"NOT EXISTS (SELECT 1 FROM {staging} e WHERE e.{key} = s.{key} AND ({before}))",
        f"NOT EXISTS (SELECT 1 FROM {target} t WHERE t.{columns[key]} = s.{key})",
    ]
    if of is not None:
        conditions.append(f"s.{seq} BETWEEN {of[0]:d} AND {of[1]:d}")
    return (
        f"INSERT INTO {target} ({', '.join(columns.values())}) "
        f"SELECT {', '.join(f's.{name}' for name in columns)} FROM {staging} s WHERE {' AND '.join(conditions)}"
    )


@dataclass(frozen=True, kw_only=True)
class StagingTask:
    """The function that Spark runs on the ranges of a batch. Its rows contain the number of the task."""

    task: SinkTask

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([*self.task.rows.schema, *_STAGING_FIELDS])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        from pyspark import TaskContext

        context = TaskContext.get()
        number = 0 if context is None else context.taskAttemptId()
        for _, (rows, seqs) in self.task.read_chunks(batches):
            columns = [pa.array([number] * len(seqs), pa.int64()), pa.array(seqs, pa.int64())]
            yield pa.RecordBatch.from_arrays([*rows.columns, *columns], schema=self.schema)


class StagedMerge:
    """Writes batches into a table by JDBC."""

    def __init__(self, session: SparkSession, sink: SparkTable) -> None:
        self._sink = sink
        self._connect = partial(connect_jdbc, session, sink.url, sink.writer_options)

    def write(self, rows: DataFrame, batch: SinkBatch, task: SinkTask) -> None:
        """Stage and merge the rows of a StagingTask."""
        table = self._sink.table
        rows = _to_table_columns(rows)
        prefix = f"postroom_{batch.batch_id.hex}_"
        staging = re.sub(r"[^.]+$", f"{prefix}{batch.attempt}", table)
        with self._connect() as database:
            columns = database.prepare(table, rows.drop(TASK, SEQ).schema)
            database.create_staging(staging, rows.schema)
        options = {**self._sink.writer_options, "url": self._sink.url, "dbtable": staging}
        try:
            rows.write.format("jdbc").options(**options).mode("append").save()
            # A new connection: one that was idle while the tasks wrote may be closed.
            with self._connect() as database:
                self._merge(database, columns, staging, task)
                try:
                    database.drop_staging(prefix, table, up_to=batch.attempt)
                except StatementFailed as error:  # all rows are merged
                    _log.warning("the staging tables %s… could not be dropped: %s", prefix, error)
        except Exception:
            with suppress(Exception), self._connect() as database:
                database.drop_staging(prefix, table, up_to=batch.attempt)
            raise

    def _merge(self, database: Database, columns: Mapping[str, str], staging: str, task: SinkTask) -> None:
        try:
            database.merge(self._sink.table, columns, staging, None)
            return
        except RowsRejected:
            seqs = database.read_staged(staging)

        def merge(first: int, end: int) -> None:
            try:
                database.merge(self._sink.table, columns, staging, (seqs[first], seqs[end - 1]))
            except RowsRejected as error:
                raise row_rejection(self._sink.table, str(error)) from error

        with task.login.connect("sink") as connection:
            task.write_accepted(connection, seqs, merge)


def _to_table_columns(rows: DataFrame) -> DataFrame:
    """Convert columns to types that tables have. Lists and structures become JSON, and times are in UTC."""
    from pyspark.sql import functions
    from pyspark.sql.types import ArrayType, MapType, StructType, TimestampType

    columns = []
    for field in rows.schema:
        column = functions.col(f"`{field.name}`")
        if isinstance(field.dataType, ArrayType | MapType | StructType):
            column = functions.to_json(column)
        elif isinstance(field.dataType, TimestampType):
            column = column.cast("timestamp_ntz")
        columns.append(column.alias(field.name))
    return rows.select(*columns)
