"""The definitions of sinks: files, tables of PostgreSQL and of other databases, and every format that Spark writes."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from postroom.adapters.contract import SendAdapter, SendDefinition
from postroom.adapters.file.definition import find_path_problems
from postroom.adapters.postgres_server import PASSWORD_IN_URL, find_libpq_problems
from postroom.adapters.sink.columns import (
    BATCH_COLUMN,
    BODY_COLUMN,
    FIXED_COLUMNS,
    Columns,
    add_partition_columns,
    find_column_problems,
    parse_column_names,
    to_columns,
)
from postroom.adapters.url_logins import has_password, remove_login
from postroom.clock import Clock, system_clock
from postroom.errors import BadValue, StateError
from postroom.properties import Property
from postroom.secrets.references import Secret, find_secret_problems, read_options
from postroom.stored_definitions import Converted, OptionalPath

#: The file formats. Postroom moves their files to the target itself.
FILE_FORMATS = ("parquet", "orc", "csv", "json")
#: The formats that can store only text.
_TEXT_FORMATS = ("csv", "json", "text", "xml")

Body = Literal["binary", "text", "none"]
#: Names of columns. The argument has properties or names.
PartitionColumns = Converted[Sequence[Property | str], tuple[str, ...]]

_MAX_MESSAGES = 1_000_000
_MAX_INTERVAL = 86_400.0
_TABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?")
#: The databases with transactions and a Spark dialect. Their rows are staged and merged.
_MERGING = ("db2", "derby", "h2", "mysql", "oracle", "postgresql", "sqlserver")
#: The columns of Postroom's staging tables in addition to those of the rows.
_STAGED = ("postroom_task", "postroom_seq")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_DRIVERS = {
    "db2": "com.ibm.db2.jcc.DB2Driver",
    "derby": "org.apache.derby.iapi.jdbc.AutoloadedDriver",
    "h2": "org.h2.Driver",
    "mariadb": "org.mariadb.jdbc.Driver",
    "mysql": "com.mysql.cj.jdbc.Driver",
    "oracle": "oracle.jdbc.OracleDriver",
    "postgresql": "org.postgresql.Driver",
    "snowflake": "net.snowflake.client.jdbc.SnowflakeDriver",
    "sqlserver": "com.microsoft.sqlserver.jdbc.SQLServerDriver",
    "teradata": "com.teradata.jdbc.TeraDriver",
}


class SinkDefinition(SendDefinition):
    """The adapter of a send port that Spark drains: columns, and the size and frequency of batches. Hosts do not serve
    it."""

    transport_type: ClassVar[str] = "SPARK"

    columns: Columns = Field(default=(), validate_default=True)
    parse: str | None = None
    body: Body = "binary"
    options: Mapping[str, str | Secret] = Field(default_factory=dict)
    max_messages: int = 100_000
    interval: float = 10.0

    @property
    @abstractmethod
    def jdbc_driver(self) -> str | None:
        """The class of the JDBC driver, or None if the rows are not written by JDBC or the database is not known."""

    @property
    def properties(self) -> tuple[Property, ...]:
        """The properties that are columns."""
        return tuple(column.as_property() for column in self.columns)

    @property
    def _parsed(self) -> list[str]:
        """The columns that are parsed from bodies. Empty if ``parse`` has a problem."""
        with suppress(ValueError):
            return parse_column_names(self.parse or "")
        return []

    def make_sender(self, home: Path, *, clock: Clock = system_clock) -> SendAdapter:
        raise StateError("Hosts do not serve Spark sinks.", hint="Run 'postroom pipeline run' for the port's host.")

    def problems(self) -> list[str]:
        others = [*FIXED_COLUMNS, BATCH_COLUMN, *([BODY_COLUMN] if self.body != "none" else [])]
        found = find_column_problems(self.columns, others)
        if not 1 <= self.max_messages <= _MAX_MESSAGES:
            found.append(f"max_messages is {self.max_messages}, but must be between 1 and {_MAX_MESSAGES:,}.")
        if not 0 <= self.interval <= _MAX_INTERVAL:
            found.append(f"interval is {self.interval:g} seconds, but must be between 0 and {_MAX_INTERVAL:g}.")
        if self.parse is not None and not self.parse.strip():
            found.append('parse is empty; write the columns in the body, such as "id BIGINT, total DECIMAL(12,2)".')
        elif self.parse is not None:
            try:
                parsed = parse_column_names(self.parse)
            except ValueError as error:
                return [*found, str(error)]
            taken = {name.lower() for name in (*others, *(column.name for column in self.columns))}
            found += [
                f"parse has the column {name!r}, which already exists." for name in parsed if name.lower() in taken
            ]
        return found


class SparkSink(SinkDefinition):
    """Rows that Spark writes in a format: ``adapters.SparkSink("parquet", "out/lake", partition_by=[Region])``.

    A row contains the message id, the interchange id, the message type, the time of receipt, a column for each of
    ``columns`` (promoted or written properties), the columns of ``parse`` (a DDL schema for JSON bodies) and the
    ``body``: ``binary``, ``text`` or ``none``. ``partition_by`` lists properties or names of columns. ``options`` are
    the options of the writer. A batch has at most ``max_messages`` messages, and starts at least ``interval`` seconds
    after the previous batch.

    Parquet, ORC, CSV and JSON files appear atomically, one directory for each batch, exactly once. A relative path is
    resolved against the home folder. Other formats are written with ``append``, at least once.
    """

    kind: Literal["spark_sink"] = "spark_sink"
    format: str = Field(kw_only=False)
    path: OptionalPath = Field(default=None, kw_only=False, validate_default=True)
    body: Converted[Body | None, Body] = Field(default=None, validate_default=True)
    partition_by: PartitionColumns = Field(default=(), validate_default=True)

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, given: dict[str, Any]) -> dict[str, Any]:
        """Add the columns of ``partition_by``, and choose how bodies are stored."""
        partition_by = given.get("partition_by", ())
        if isinstance(partition_by, str):
            raise BadValue(f"partition_by is {partition_by!r}.", hint="Write partition_by=[Region].")
        columns, names = add_partition_columns(to_columns(given.get("columns", ())), partition_by)
        body = given.get("body") or ("text" if given.get("format") in _TEXT_FORMATS else "binary")
        return {**given, "columns": columns, "partition_by": names, "body": body}

    @property
    def is_files(self) -> bool:
        """True if the format is a file format, whose files Postroom moves to the target."""
        return self.format in FILE_FORMATS

    @property
    def jdbc_driver(self) -> str | None:
        return find_driver(self._jdbc_url, self.options) if self.format == "jdbc" else None

    @property
    def writer_options(self) -> dict[str, str]:
        """The options of Spark's writer, with the present values of secrets."""
        return read_options(_add_driver(self._jdbc_url, self.options) if self.format == "jdbc" else self.options)

    @property
    def _jdbc_url(self) -> str:
        given = next((value for name, value in self.options.items() if name.lower() == "url"), "")
        return given if isinstance(given, str) else ""

    @property
    def is_local(self) -> bool:
        """True if the path is in a local file system, where a directory can be renamed atomically."""
        return self.path is not None and not _SCHEME.match(self.path)

    @property
    def guarantee(self) -> str:
        if not self.is_files:
            guarantee = f"at least once: the writer {self.format!r} may repeat a batch, rows have their message_id"
            return f"{guarantee}; SparkTable merges by it" if self.format == "jdbc" else guarantee
        if self.is_local:
            return "exactly once: each batch is a directory that appears whole"
        return "exactly once for readers of the commit log in _postroom"

    def problems(self) -> list[str]:
        found = super().problems()
        if not self.format.strip():
            found.append("format is empty; write a format that your Spark supports, such as 'parquet'.")
        if self.path is not None:
            found += find_path_problems("path", self.path)
        elif self.is_files:
            found.append(f"the format {self.format!r} needs a path: adapters.SparkSink({self.format!r}, 'out/lake').")
        names = {column.name for column in self.columns} | {*FIXED_COLUMNS, *self._parsed}
        found += [
            f"partition_by names {name!r}, which is not a column. Use the property, or add it to columns."
            for name in self.partition_by
            if name not in names
        ]
        if self.body == "binary" and self.format in ("csv", "text"):
            found.append(f"the format {self.format!r} can store only text; use body='text' or 'none'.")
        found += [f"option {name!r} is set by Postroom." for name in self.options if name.lower() == "path"]
        if has_password(self._jdbc_url):
            found.append(f"option 'url' {PASSWORD_IN_URL}")
        return found + find_secret_problems("option", self.options)

    def target(self, home: Path) -> str:
        """Return the absolute path to write to."""
        assert self.path is not None
        return str((home / self.path).absolute()) if self.is_local else self.path.rstrip("/")

    def address(self, home: Path) -> str:
        if self.path is None:
            return f"spark:{self.format}"
        return Path(self.target(home)).as_uri() if self.is_local else self.target(home)


class SparkTable(SinkDefinition):
    """Rows of a table of PostgreSQL: ``adapters.SparkTable("postgresql://etl@db/warehouse", "lake.orders")``, or of
    another database by JDBC: ``adapters.SparkTable("jdbc:sqlserver://db", "dbo.orders", options={"user": "etl"})``.

    Rows are merged by ``message_id``, so each row exists exactly once. The table is
    created if it does not exist. An existing table needs the columns and a unique index on ``message_id``. ``options``
    are the options of Spark's JDBC writer or the settings of libpq, such as ``user`` and ``password``, which is a
    ``postroom.secret(...)``. For the other arguments see ``SparkSink``.
    """

    kind: Literal["spark_table"] = "spark_table"
    url: str = Field(kw_only=False)
    table: str = Field(kw_only=False)

    @property
    def is_jdbc(self) -> bool:
        """True if Spark's JDBC writer writes the rows. Otherwise the tasks write them to PostgreSQL."""
        return self.url.startswith("jdbc:")

    @property
    def jdbc_driver(self) -> str | None:
        return find_driver(self.url, self.options) if self.is_jdbc else None

    @property
    def writer_options(self) -> dict[str, str]:
        """The options of Spark's JDBC writer, or the settings of a connection to PostgreSQL, with the present values of
        secrets."""
        return read_options(_add_driver(self.url, self.options))

    @property
    def guarantee(self) -> str:
        return "exactly once: rows are merged by message_id"

    def problems(self) -> list[str]:
        found = super().problems()
        if has_password(self.url):
            found.append(f"url {PASSWORD_IN_URL}")
        found += find_secret_problems("option", self.options)
        found += self._jdbc_problems() if self.is_jdbc else self._postgresql_problems()
        if not _TABLE.fullmatch(self.table):
            found.append(f"table {self.table!r} is not the name of a table, such as 'orders' or 'lake.orders'.")
        return found

    def _jdbc_problems(self) -> list[str]:
        found = []
        database = self.url.split(":")[1]
        if database not in _MERGING:
            found.append(
                f"url is of jdbc:{database}, which does not support merging rows; these do: "
                f"{', '.join(_MERGING)}. adapters.SparkSink('jdbc', ...) writes at least once."
            )
        taken = {name.lower() for name in ("url", "dbtable", "query")}
        found += [f"option {name!r} is set by Postroom." for name in self.options if name.lower() in taken]
        names = (*(column.name for column in self.columns), *self._parsed)
        found += [f"column {name!r}: the name is reserved." for name in names if name.lower() in _STAGED]
        return found

    def _postgresql_problems(self) -> list[str]:
        if not re.match(r"postgres(ql)?://", self.url):
            return ["url must start with postgresql:// or jdbc:."]
        return find_libpq_problems(self.url, self.options)

    def address(self, home: Path) -> str:
        # Without the login, and without the settings, which may contain a password.
        shown = remove_login(self.url)
        shown = re.sub(r"^(jdbc:\w+:\w+:)[^@]*@", r"\1@", shown)
        return f"{re.split('[?;]', shown)[0]}#{self.table}"


def find_driver(url: str, options: Mapping[str, str | Secret]) -> str | None:
    """Return the class of the driver: the option ``driver``, or the class of the database in the URL. Return None if
    the database is not known."""
    given = next(
        (value for name, value in options.items() if name.lower() == "driver" and isinstance(value, str)), None
    )
    scheme, _, rest = url.partition(":")
    return given or (_DRIVERS.get(rest.partition(":")[0].lower()) if scheme.lower() == "jdbc" else None)


def _add_driver(url: str, options: Mapping[str, str | Secret]) -> dict[str, str | Secret]:
    """Return the options of Spark's JDBC writer with the class of the driver, if it is known.

    ``java.sql.DriverManager`` finds a driver only if its jar was there when the JVM started. With the name of its
    class, Spark loads it from the jars of the session, in the driver and in the tasks."""
    driver = find_driver(url, options)
    named = {name.lower() for name in options}
    return {**options, **({"driver": driver} if driver is not None and "driver" not in named else {})}
