"""A Spark session for tests and benchmarks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.spark.session import create_session, end_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def open_session(home: Path, *, master: str, settings: Mapping[str, str] | None = None) -> Iterator[SparkSession]:
    """Create a session that ends with the block, together with its JVM."""
    session = create_session(home, master=master, settings=settings)
    try:
        yield session
    finally:
        end_session(session)
