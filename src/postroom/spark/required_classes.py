"""Checks that the Spark session has the classes that a receive location or a sink needs.

They are in jars that the session was started with. Without one, every batch would fail and suspend its messages. So it
is checked before a message is taken, and the messages wait.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from postroom.errors import StateError
from postroom.spark.error_reasons import format_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HINT = (
    "Start the pipeline with the jar: --conf spark.jars=FILE, or --conf spark.jars.packages=GROUP:NAME:VERSION. "
    "Nothing is lost: what waits is processed then."
)


def check_format(session: SparkSession, format: str) -> None:
    """Raise StateError if the session has no data source for a format."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    jvm: Any = session._jvm
    state: Any = session._jsparkSession.sessionState()
    if state.dataSourceManager().dataSourceExists(format):
        return  # it is written in Python
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(format, state.conf())
    except (PySparkException, Py4JJavaError) as error:
        raise StateError(
            f"This Spark session cannot read or write the format {format!r}.", why=format_reason(error), hint=_HINT
        ) from None


def check_driver(session: SparkSession, driver: str) -> None:
    """Raise StateError if the session does not have the class of a JDBC driver."""
    from py4j.protocol import Py4JJavaError

    jvm: Any = session._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(driver)
    except Py4JJavaError:
        raise StateError(
            f"This Spark session does not have the JDBC driver {driver}.",
            why="The class is in none of its jars.",
            hint=_HINT,
        ) from None
