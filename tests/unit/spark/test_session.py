"""The SPARK_HOME of a session: links to the installed package."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.spark.session import make_spark_home


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A package with an archive of PySpark, and with the files of executors of another session."""
    for folder in ("bin", "jars", "python/lib", "work"):
        (tmp_path / "pyspark" / folder).mkdir(parents=True)
    return tmp_path / "pyspark"


def test_a_spark_home_has_no_archive_of_pyspark(package: Path, tmp_path: Path) -> None:
    home = make_spark_home(tmp_path / "home", package)
    assert {entry.name for entry in home.iterdir()} == {"bin", "jars"}
    assert (home / "jars").resolve() == package / "jars"


def test_executors_write_outside_the_package_into_an_empty_folder(package: Path, tmp_path: Path) -> None:
    work = tmp_path / "logs" / "work"
    work.mkdir(parents=True)
    (work / "old").touch()
    home = make_spark_home(tmp_path / "home", package, work=work)
    assert (home / "work").resolve() == work
    assert list(work.iterdir()) == []
