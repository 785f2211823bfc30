"""The Spark session of a process: its settings, its log, and its limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from postroom.errors import StateError
from postroom.spark.session import create_session
from postroom.spark.settings import add_task_attempts, is_local, is_this_machine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[ 3 ]", "local[3,4]"),
        ("local[2,1]", "local[2,1]"),
        ("spark://cluster:7077", "spark://cluster:7077"),
        ("local-cluster[1,1,1024]", "local-cluster[1,1,1024]"),
    ],
)
def test_a_local_master_retries_tasks(given: str, used: str) -> None:
    assert add_task_attempts(given) == used


def test_settings_for_one_machine_are_not_used_on_a_cluster() -> None:
    assert is_local("local")
    assert is_local("local[2]")
    assert not is_local("local-cluster[1,1,1024]")
    assert is_this_machine("local-cluster[1,1,1024]")
    assert not is_this_machine("k8s://https://cluster")
    assert not is_this_machine("spark://localhost:7077")


def test_socket_paths_are_short_and_the_environment_is_restored(session: SparkSession) -> None:
    conf = session.sparkContext.getConf()
    folder = conf.get("spark.python.unix.domain.socket.dir")
    assert folder is not None
    assert len(folder) < 50
    assert (Path(folder).stat().st_mode & 0o777, Path(folder).stat().st_uid) == (0o700, os.geteuid())
    assert session.conf.get("spark.sql.session.timeZone") == "UTC"
    assert not [name for name in os.environ if name.startswith(("PYSPARK_", "POSTROOM_SPARK"))]


def test_the_handler_of_ctrl_c_is_not_replaced(session: SparkSession) -> None:
    """PySpark installs a handler that calls the JVM."""
    handler = signal.getsignal(signal.SIGINT)
    assert "pyspark" not in str(getattr(handler, "__module__", ""))


def test_a_second_session_is_refused(session: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(StateError):
        create_session(tmp_path)
    assert session.range(3).count() == 3


def test_the_error_of_a_jvm_that_does_not_start_has_the_reason_and_the_log(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from postroom.spark.session import create_session;"
        " create_session(Path(sys.argv[1]), settings={'spark.driver.memory': 'plenty'})"
    )
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Unavailable: Spark did not start." in done.stderr
    log = tmp_path / ".postroom" / "logs" / "spark.err"
    assert str(log) in done.stderr
    assert "\nInvalid maximum heap size: -Xmxplenty\n" in done.stderr
    assert "plenty" in log.read_text()
