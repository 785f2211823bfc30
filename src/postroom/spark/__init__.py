"""The data pipeline: Spark Structured Streaming. The only package that imports pyspark, and only where it is used."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register(
    session: SparkSession,
    *,
    url: str | None = None,
    home: str | os.PathLike[str] | None = None,
    user: str | None = None,
) -> None:
    """Register the data source ``postroom`` in your own Spark session, for notebooks. It reads the MessageBox at
    ``url``, or the embedded one in the folder ``home``. Without either it reads the one in POSTROOM_DATABASE, or else
    the embedded one in the current folder.

    import postroom.spark

    postroom.spark.register(spark, home="orders-home")
    spark.read.format("postroom").load("messages").show()
    """
    from postroom.spark.history.data_source import register_history

    register_history(session, url, home, user)
