"""A JDBC database: Apache Derby, which is part of Spark, in the JVM of the session."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class Derby:
    """One database in a folder."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self.url = f"jdbc:derby:{folder / 'data base'};create=true"
        self._manager: Any = session._jvm.java.sql.DriverManager  # type: ignore[union-attr]

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        connection = self._manager.getConnection(self.url)
        try:
            run = connection.createStatement()
            if not run.execute(statement):
                return []
            rows, found = run.getResultSet(), []
            width = rows.getMetaData().getColumnCount()
            while rows.next():
                found.append(tuple(rows.getString(n + 1) for n in range(width)))
            return found
        finally:
            connection.close()

    def tables(self) -> list[str]:
        return [name for (name,) in self.execute("SELECT tablename FROM sys.systables WHERE tabletype = 'T'")]


@contextmanager
def open_derby(session: SparkSession, folder: Path) -> Iterator[Derby]:
    # By default Derby writes its log to the working directory.
    session._jvm.java.lang.System.setProperty("derby.stream.error.file", str(folder / "derby.log"))  # type: ignore[union-attr]
    derby = Derby(session, folder)
    yield derby
    with suppress(Exception):  # Derby reports its shutdown as an error
        derby._manager.getConnection(derby.url.replace("create=true", "shutdown=true"))
