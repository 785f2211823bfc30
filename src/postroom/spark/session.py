"""The Spark session of a process: its JVM, how it is tuned, and where it writes.

    with open_session(home, master="local[2]") as session:
        ...

The JVM ends with the process that started it, however that ends: it reads a pipe whose other end only that process
holds.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from postroom.errors import StateError, Unavailable
from postroom.private_folder import private_folder, remove_private_folder
from postroom.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_STOP_SECONDS = 20.0
_TASK_ATTEMPTS = 4

#: What holds for every master.
_SETTINGS = {
    "spark.app.name": "postroom",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    # A row is a claimed file. This many at a time are handed to the Message Agent, which makes transactions of them.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    "spark.python.worker.reuse": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # The receive stream has no expression that generated code could make faster; a batch is planned 20 ms sooner.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stopTimeout": "20s",
    # The default forks a process for each look at a path, about 40 ms a log write.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}

#: A fixed heap. The code is compiled once and lightly: most of what a pipeline does is outside the JVM, and the
#: optimising compiler would take more of a small machine than it gives back (40 % less CPU until the first batch).
_JAVA_OPTIONS = (
    "-Xms{heap} -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError"
    " -Djava.io.tmpdir={scratch} -Duser.timezone=UTC"
)

_LOG4J = """\
rootLogger.level = warn
rootLogger.appenderRef.file.ref = file
# These have nothing to tell that could be acted on.
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = error
logger.trigger.name = org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor
logger.trigger.level = error
appender.file.type = RollingFile
appender.file.name = file
appender.file.fileName = ${env:POSTROOM_SPARK_LOG}
appender.file.filePattern = ${env:POSTROOM_SPARK_LOG}.%i
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC}Z %p %c{1}: %m%n%ex
appender.file.policies.type = Policies
appender.file.policies.size.type = SizeBasedTriggeringPolicy
appender.file.policies.size.size = 10MB
appender.file.strategy.type = DefaultRolloverStrategy
appender.file.strategy.max = 3
"""


@contextmanager
def open_session(
    home: Path, *, master: str = "local[*]", name: str = "spark", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session that ends, with its JVM, when the block does."""
    session = create_session(home, master=master, name=name, settings=settings)
    try:
        yield session
    finally:
        end_session(session)


def create_session(
    home: Path, *, master: str = "local[*]", name: str = "spark", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Starts a JVM with a session in it; one per process at a time. What it says goes into the folder of logs under
    ``home``, in files that begin with ``name``. ``settings`` are Spark's, and go before ours."""
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    if SparkContext._gateway is not None:
        raise StateError("This process has a Spark session already.", hint="End it before you create another.")
    logging.getLogger("py4j").setLevel(logging.WARNING)  # it tells of every connection
    _remove_left_over()
    scratch = _scratch_folder()
    log = home / ".postroom" / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    (scratch / "log4j2.properties").write_text(_LOG4J)
    chosen = {**_SETTINGS, **(_local_settings(scratch) if is_local(master) else {}), **(settings or {})}
    options = _JAVA_OPTIONS.format(heap=chosen["spark.driver.memory"], scratch=scratch)
    chosen["spark.driver.extraJavaOptions"] = f"{options} {chosen.get('spark.driver.extraJavaOptions', '')}".strip()
    conf = SparkConf(loadDefaults=False).setAll(list(chosen.items()))
    conf.setMaster(_with_attempts(master))
    with _environment(scratch, log, local=is_local(master)), without_pandas_warning():
        try:
            with _turned_over(log.with_suffix(".err")).open("wb") as said:
                gateway = launch_gateway(  # type: ignore[no-untyped-call]
                    conf, popen_kwargs={"stdout": said, "stderr": subprocess.STDOUT}
                )
            return SparkSession(SparkContext(conf=conf, gateway=gateway))
        except Exception as error:
            _end_jvm()
            _remove(scratch)
            raise Unavailable(
                "Spark did not start.", why=str(error).strip(), hint=f"See {log} and {log.with_suffix('.err')}."
            ) from error


def end_session(session: SparkSession) -> None:
    """Stops the session and ends its JVM; returns when that is gone."""
    with suppress(Exception):  # the JVM may be gone already
        session.stop()
    _end_jvm()
    _remove(_scratch_folder())


def has_died(session: SparkSession, *, within: float) -> bool:
    """Whether the session's JVM is gone, or goes in so many seconds: its sockets close before its process ends."""
    gateway = session.sparkContext._gateway
    if gateway is None:
        return True
    try:
        return gateway.proc is not None and gateway.proc.wait(within) is not None
    except subprocess.TimeoutExpired:
        return False


def is_local(master: str) -> bool:
    return re.match(r"local(\[|$)", master) is not None


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """PySpark warns of versions of pandas that it does not know, whether or not pandas is used. Here it is not."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        yield


def _local_settings(scratch: Path) -> dict[str, str]:
    return {
        "spark.local.dir": str(scratch),
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        # No checksum files beside the checkpoint's.
        "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
        # Saves 40 ms a Python stage. A socket's path has room for about a hundred bytes.
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.python.unix.domain.socket.dir": str(scratch),
    }


def _with_attempts(master: str) -> str:
    """Local masters try a task once unless told otherwise."""
    if master == "local":
        return f"local[1,{_TASK_ATTEMPTS}]"
    return re.sub(r"^local\[\s*(\d+|\*)\s*\]$", rf"local[\1,{_TASK_ATTEMPTS}]", master)


@contextmanager
def _environment(scratch: Path, log: Path, *, local: bool) -> Iterator[None]:
    """What the JVM and Spark's Python processes see. The shell's settings for another Spark are not for a local one."""
    import pyspark

    before = dict(os.environ)
    if local:
        for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
            del os.environ[name]
        os.environ["SPARK_HOME"] = str(Path(pyspark.__file__).parent)
        os.environ["SPARK_CONF_DIR"] = str(scratch)
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JAVA_HOME"] = str(find_java())
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["POSTROOM_SPARK_LOG"] = str(log.absolute())
    # A file in the present folder must not stand in for a module of the same name.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _turned_over(file: Path) -> Path:
    """The name to write to; what was there is kept once, because a crash explains itself there."""
    with suppress(FileNotFoundError):
        file.replace(file.with_suffix(".err.old"))
    return file


def _end_jvm() -> None:
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    if gateway is None:
        return
    with suppress(Exception):
        gateway.shutdown()
    process: subprocess.Popen[bytes] | None = gateway.proc
    if process is None:
        return
    if process.stdin is not None:
        process.stdin.close()
    for sign in (None, signal.SIGTERM, signal.SIGKILL):
        if sign is not None:
            process.send_signal(sign)
        with suppress(subprocess.TimeoutExpired):
            process.wait(_STOP_SECONDS)
            return


def _scratch_folder() -> Path:
    """For sockets, spilled data and libraries; short, and this process's own."""
    return private_folder(f"spark-{os.getpid()}")


def _remove_left_over() -> None:
    """The scratch folders of processes that were killed; one with this process's own number is among them."""
    for folder in _scratch_folder().parent.glob("spark-*"):
        pid = folder.name.removeprefix("spark-")
        if pid.isdigit() and (int(pid) == os.getpid() or not psutil.pid_exists(int(pid))):
            _remove(folder)


def _remove(folder: Path) -> None:
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir() and not entry.is_symlink():
            shutil.rmtree(entry, ignore_errors=True)
        else:
            entry.unlink(missing_ok=True)
    remove_private_folder(folder)
