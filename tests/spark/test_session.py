"""The Spark session of a process: its settings, its log, and its limits."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyspark
import pytest

from postroom.errors import StateError
from postroom.spark.session import create_session, without_pandas_warning
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


def test_python_workers_import_the_installed_pyspark(session: SparkSession) -> None:
    """Not the archive of it in SPARK_HOME, whose modules are compiled at every import."""

    def find_module(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyspark

        for batch in batches:
            yield pa.RecordBatch.from_pydict({"path": [pyspark.__file__] * len(batch)})

    with without_pandas_warning():
        [(path,)] = session.range(1).mapInArrow(find_module, "path string").collect()
    assert path == pyspark.__file__


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


@pytest.mark.parametrize("is_authenticated", [False, True])
def test_the_driver_accepts_only_authenticated_connections(session: SparkSession, is_authenticated: bool) -> None:
    """A client of Spark's RPC asks the driver for one of its endpoints. In this JVM it finds the secret, if it uses
    one."""
    from py4j.protocol import Py4JJavaError

    jvm = session.sparkContext._gateway.jvm  # type: ignore[union-attr]
    port = session.sparkContext.getConf().get("spark.driver.port")
    conf = jvm.org.apache.spark.SparkConf(False).set("spark.authenticate", str(is_authenticated).lower())
    conf.set("spark.rpc.lookupTimeout", "20s").set("spark.rpc.numRetries", "1")
    default_file = getattr(jvm.org.apache.spark.SecurityManager, "$lessinit$greater$default$3")()
    security = jvm.org.apache.spark.SecurityManager(conf, jvm.scala.Option.empty(), default_file)
    client = jvm.org.apache.spark.rpc.RpcEnv.create("stranger", "localhost", 0, conf, security, True)
    try:
        address = f"spark://HeartbeatReceiver@localhost:{port}"
        if is_authenticated:
            assert client.setupEndpointRefByURI(address).name() == "HeartbeatReceiver"
        else:
            with pytest.raises(Py4JJavaError):
                client.setupEndpointRefByURI(address)
    finally:
        client.shutdown()
        client.awaitTermination()


_LOCAL_CLUSTER = """
import sys
from pathlib import Path
import psutil
from tests.support.spark_session import open_session

settings = {"spark.driver.memory": "512m", "spark.executor.memory": "512m"}
with open_session(Path(sys.argv[1]), master="local-cluster[1,1,512]", settings=settings) as session:
    conf = session.sparkContext.getConf()
    assert session.range(10).count() == 10
    secret = conf.get("spark.authenticate.secret")
    assert conf.get("spark.authenticate") == "true" and len(secret) == 64
    lines = []
    for process in psutil.process_iter():
        try:
            lines.append(" ".join(process.cmdline()))
        except psutil.Error:
            pass
    assert any("CoarseGrainedExecutorBackend" in line for line in lines)
    assert not [line for line in lines if secret in line]
"""


@pytest.mark.sample("Spark of its own")
def test_the_secret_of_a_local_cluster_is_in_no_arguments(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", _LOCAL_CLUSTER, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_standalone_cluster_without_a_secret_is_rejected(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; from postroom.spark.session import create_session;"
        " create_session(Path(sys.argv[1]), master='spark://localhost:1')"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("SPARK_")}
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "StateError: There is no secret for the cluster spark://localhost:1." in done.stderr
