"""The data pipeline: Spark Structured Streaming. The only room that imports pyspark, and only where it is used."""

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
    """Makes a Spark session of your own know a MessageBox, for notebooks: that at ``url``, or the embedded one in the
    folder ``home``; without either, that in POSTROOM_DATABASE, else that in the current folder.

    import postroom.spark

    postroom.spark.register(spark, home="orders-home")
    spark.read.format("postroom").load("messages").show()
    """
    from postroom.spark.history.data_source import register_history

    register_history(session, url=url, home=home, user=user)
