"""The JDBC driver of a database, by its URL.

``java.sql.DriverManager`` finds a driver only if its jar was there when the JVM started. With the name of its class,
Spark loads it from the jars of the session, in the driver and in the tasks.
"""

from __future__ import annotations

from collections.abc import Mapping

from postroom.secrets.references import Secret

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


def find_driver(url: str, options: Mapping[str, str | Secret]) -> str | None:
    """Return the class of the driver: the option ``driver``, or the class of the database in the URL. Return None if
    the database is not known."""
    given = next(
        (value for name, value in options.items() if name.lower() == "driver" and isinstance(value, str)), None
    )
    scheme, _, rest = url.partition(":")
    return given or (_DRIVERS.get(rest.partition(":")[0].lower()) if scheme.lower() == "jdbc" else None)


def add_driver(url: str, options: Mapping[str, str | Secret]) -> dict[str, str | Secret]:
    """Return the options of Spark's JDBC writer with the class of the driver, if it is known."""
    driver = find_driver(url, options)
    named = {name.lower() for name in options}
    return {**options, **({"driver": driver} if driver is not None and "driver" not in named else {})}
