"""A table that JDBC reaches, as the driver sees it, through the session's JVM.

    jdbc = JdbcTable(session, sink)
    with jdbc.connected() as database:
        target = database.prepare("lake.orders", schema)          # made if it is not there
        database.make_staging("postroom_3c1c…_1", schema)         # tasks write into it
        database.merge(target, "postroom_3c1c…_1", None)          # in one transaction

Connections are Spark's own, so that drivers, logins and dialects are those of its JDBC writer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from postroom.errors import DefinitionError, Unavailable
from postroom.spark.sinks.merge import KEY, SEQ, TASK, merge_statement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

_T = TypeVar("_T")

#: The classes of SQLSTATE that are about the values of a row: data exceptions, and violated constraints.
_ABOUT_ROWS = ("22", "23")
_KEY_TYPE = "VARCHAR(36)"
#: Where Spark's dialect would give text a length.
_TEXT_TYPES = {"oracle": "CLOB"}


class DatabaseError(Exception):
    """What the database said to a statement."""

    def __init__(self, said: str, state: str) -> None:
        super().__init__(f"{said} (SQLSTATE {state})" if state else said)
        self.is_about_rows = state.startswith(_ABOUT_ROWS)


@dataclass(frozen=True, kw_only=True)
class Target:
    """The table that rows are merged into: its name as the user wrote it, and its columns by those of rows."""

    name: str
    columns: Mapping[str, str]


class JdbcTable:
    """Where the connections of one sink come from."""

    def __init__(self, session: SparkSession, url: str, options: Mapping[str, str]) -> None:
        self._session = session
        self._url = url
        self._options = options

    @contextmanager
    def connected(self) -> Iterator[Database]:
        jvm: Any = self._session._jvm
        jdbc: Any = jvm.org.apache.spark.sql.execution.datasources.jdbc
        dialect = jvm.org.apache.spark.sql.jdbc.JdbcDialects.get(self._url)
        # Of which table is not looked at for a connection.
        options = jdbc.JDBCOptions(jvm.PythonUtils.toScalaMap({**self._options, "url": self._url, "dbtable": "none"}))
        try:
            connection = self._asked(lambda: dialect.createConnectionFactory(options).apply(-1))
        except DatabaseError as error:
            raise Unavailable("The database of the table cannot be reached.", why=str(error)) from error
        try:
            yield Database(self._session, dialect, connection, self._asked, _TEXT_TYPES.get(self._url.split(":")[1]))
        finally:
            # Some databases do not close a connection in a transaction.
            with suppress(Exception):
                connection.rollback()
            with suppress(Exception):
                connection.close()

    def _asked(self, ask: Callable[[], _T]) -> _T:
        from py4j.java_gateway import is_instance_of
        from py4j.protocol import Py4JJavaError

        try:
            return ask()
        except Py4JJavaError as error:
            raised = error.java_exception
            if is_instance_of(self._session._sc._gateway, raised, "java.sql.SQLException"):
                said = str(raised.getMessage()).strip().partition("\n")[0]
                raise DatabaseError(said, str(raised.getSQLState() or "")) from None
            raise


class Database:
    """One connection; each statement is its own transaction."""

    def __init__(
        self,
        session: SparkSession,
        dialect: Any,
        connection: Any,
        asked: Callable[[Callable[[], Any]], Any],
        text_type: str | None,
    ) -> None:
        self._session = session
        self._dialect = dialect
        self._connection = connection
        self._asked = asked
        self._text_type = text_type

    def prepare(self, table: str, schema: StructType) -> Target:
        """The table, made if it is not there. One that is there needs the columns, and message_id to be unique."""
        try:
            there = self._columns(table)
        except DatabaseError:
            # Most likely it is not there; if it is something else, making it tells what.
            self._execute(self._create(table, schema, [KEY]))
            there = self._columns(table)
        columns = {}
        for field in schema:
            name = next((one for one in there if one == field.name), None)
            name = name or next((one for one in there if one.lower() == field.name.lower()), None)
            if name is None:
                raise DefinitionError(
                    f"The table {table} has no column {field.name}.",
                    hint=f"Add it, or let Postroom make the table. Its columns are: {', '.join(there)}.",
                )
            columns[self._quoted(field.name)] = self._quoted(name)
        if not self._is_unique(table, columns[self._quoted(KEY)]):
            raise DefinitionError(
                f"The table {table} has no unique index on {KEY} alone.",
                why="Without one a row that comes again would be there twice.",
                hint=f"ALTER TABLE {table} ADD UNIQUE ({columns[self._quoted(KEY)]})",
            )
        if not self._asked(lambda: self._connection.getMetaData().supportsTransactions()):
            raise DefinitionError(
                f"The database of the table {table} has no transactions.",
                hint="Use adapters.SparkSink('jdbc', ...), which is at least once.",
            )
        return Target(name=table, columns=columns)

    def make_staging(self, table: str, schema: StructType) -> None:
        """An empty table for the rows of an attempt, whatever an earlier try at it has left."""
        with suppress(DatabaseError):
            self._execute(f"DROP TABLE {table}")
        self._execute(self._create(table, schema, [KEY, TASK, SEQ]))

    def merge(self, target: Target, staging: str, of: tuple[int, int] | None) -> int:
        """Adds those staged rows that are not there yet, all or none; says how many that were."""
        statement = merge_statement(
            target.name,
            staging,
            target.columns,
            key=self._quoted(KEY),
            task=self._quoted(TASK),
            seq=self._quoted(SEQ),
            of=of,
        )
        self._asked(lambda: self._connection.setAutoCommit(False))
        try:
            added = self._execute(statement)
            self._commit()
        except BaseException:
            with suppress(Exception):
                self._connection.rollback()
            raise
        finally:
            with suppress(Exception):
                self._connection.setAutoCommit(True)
        return added

    def staged(self, staging: str) -> list[int]:
        """The numbers of the messages whose rows are staged."""
        seq = self._quoted(SEQ)
        rows = self._query(f"SELECT DISTINCT {seq} FROM {staging} ORDER BY {seq}")
        found = []
        while self._asked(rows.next):
            found.append(int(rows.getLong(1)))
        return found

    def drop_staging(self, prefix: str, table: str, *, up_to: int) -> None:
        """Removes the staging tables that are in the schema of a table and whose names begin so and end with a number,
        up to one."""
        catalog, schema, stored = self._place(re.sub(r"[^.]+$", prefix, table))
        metadata = self._connection.getMetaData()
        tables = self._asked(lambda: metadata.getTables(catalog, schema, f"{stored}%", None))
        names = []
        while self._asked(tables.next):
            names.append(str(tables.getString("TABLE_NAME")))
        self._asked(tables.close)
        for name in names:
            number = name[len(prefix) :]
            if number.isdecimal() and int(number) <= up_to:
                self._execute(f"DROP TABLE {re.sub(r'[^.]+$', name, table)}")

    def _commit(self) -> None:
        self._asked(self._connection.commit)

    def _execute(self, statement: str) -> int:
        def run() -> int:
            prepared = self._connection.createStatement()
            try:
                return int(prepared.executeUpdate(statement))
            finally:
                prepared.close()

        return int(self._asked(run))

    def _query(self, statement: str) -> Any:
        return self._asked(lambda: self._connection.createStatement().executeQuery(statement))

    def _columns(self, table: str) -> list[str]:
        rows = self._query(f"SELECT * FROM {table} WHERE 1 = 0")
        metadata = rows.getMetaData()
        names = [str(metadata.getColumnName(n + 1)) for n in range(metadata.getColumnCount())]
        rows.close()
        return names

    def _is_unique(self, table: str, key: str) -> bool:
        catalog, schema, name = self._place(table)
        metadata = self._connection.getMetaData()
        rows = self._asked(lambda: metadata.getIndexInfo(catalog, schema, name, True, True))
        indexes: dict[str, list[str]] = {}
        while self._asked(rows.next):
            if rows.getString("COLUMN_NAME") is not None:
                column = self._quoted(str(rows.getString("COLUMN_NAME")))
                indexes.setdefault(str(rows.getString("INDEX_NAME")), []).append(column)
        rows.close()
        return [key] in indexes.values()

    def _place(self, table: str) -> tuple[str | None, str | None, str]:
        """Catalogue, schema and name of a table as the database has stored them."""
        metadata = self._connection.getMetaData()
        if metadata.storesUpperCaseIdentifiers():
            table = table.upper()
        elif metadata.storesLowerCaseIdentifiers():
            table = table.lower()
        before, _, name = table.rpartition(".")
        catalog = self._asked(self._connection.getCatalog)
        if not metadata.supportsSchemasInTableDefinitions():
            return before or catalog, None, name
        return catalog, before or self._asked(self._connection.getSchema), name

    def _create(self, table: str, schema: StructType, key: list[str]) -> str:
        columns = [
            f"{self._quoted(field.name)} {self._type(field.name, field.dataType)}"
            + (" NOT NULL" if field.name in key else "")
            for field in schema
        ]
        return f"CREATE TABLE {table} ({', '.join(columns)}, PRIMARY KEY ({', '.join(map(self._quoted, key))}))"

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
            raise DefinitionError(f"The column {name} has the type {data_type.simpleString()}, which no table has.")
        return str(found.get().databaseTypeDefinition())

    def _quoted(self, name: str) -> str:
        return str(self._dialect.quoteIdentifier(name))
