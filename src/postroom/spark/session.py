"""The Spark session of a process: its JVM, how it is tuned, and where it writes.

    with open_session(home, master="local[2]") as session:
        ...

The JVM ends with the process that started it, however that ends: it reads a pipe whose other end only that process
holds. Under ``spark-submit`` it is the other way round: the JVM was there first and has started this process, and where
Spark runs, and on what Java, is decided already.
"""

from __future__ import annotations

import logging
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from postroom.errors import StateError, Unavailable
from postroom.private_folder import private_folder, remove_private_folder
from postroom.spark.java import find_java
from postroom.spark.local_cluster import make_spark_home
from postroom.spark.py4j_log import quieten_py4j
from postroom.spark.settings import (
    DRIVER_LOG4J,
    driver_options,
    is_here,
    is_local_cluster,
    settings_for,
    with_attempts,
)

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

DEFAULT_MASTER = "local[*]"
#: Where the JVM, or Spark's launcher, says why it ends.
_REASON = re.compile(
    r"Error|Terminating due to|Exception in thread|Caused by|Invalid |Unrecognized |[\w.]+(Exception|Error):"
)
_THROWN = re.compile(r"^Exception in thread \"main\" [\w.]+: ")
_STOP_SECONDS = 20.0


@contextmanager
def open_session(
    home: Path, *, master: str | None = None, name: str = "spark", settings: Mapping[str, str] | None = None
) -> Iterator[SparkSession]:
    """A session that ends, with its JVM, when the block does."""
    session = create_session(home, master=master, name=name, settings=settings)
    try:
        yield session
    finally:
        end_session(session)


def create_session(
    home: Path, *, master: str | None = None, name: str = "spark", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Starts a JVM with a session in it; one per process at a time. What it says goes into the folder of logs under
    ``home``, in files that begin with ``name``. ``settings`` are Spark's, and go before ours.

    Under ``spark-submit`` the JVM is the one that has started this process. What it was told goes before ours, too."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        raise StateError("This process has a Spark session already.", hint="End it before you create another.")
    quieten_py4j()
    _remove_left_over()
    if is_submitted():
        return _join(master, settings or {})
    return _start(home, master or DEFAULT_MASTER, name, settings or {})


def is_submitted() -> bool:
    """Whether ``spark-submit`` has started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _start(home: Path, master: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    scratch = _scratch_folder()
    log = home / ".postroom" / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    (scratch / "log4j2.properties").write_text(DRIVER_LOG4J)
    chosen = {**settings_for(master, scratch), **settings}
    options = driver_options(chosen["spark.driver.memory"], scratch)
    chosen["spark.driver.extraJavaOptions"] = f"{options} {chosen.get('spark.driver.extraJavaOptions', '')}".strip()
    conf = SparkConf(loadDefaults=False).setAll(list(chosen.items()))
    conf.setMaster(with_attempts(master))
    with _environment(scratch, log, master=master, python=chosen.get("spark.pyspark.python")):
        try:
            with _turned_over(log.with_suffix(".err")).open("wb") as said:
                gateway = launch_gateway(  # type: ignore[no-untyped-call]
                    conf, popen_kwargs={"stdout": said, "stderr": subprocess.STDOUT}
                )
            return _session(conf, gateway)
        except Exception as error:
            _end_jvm()
            _remove(scratch)
            why = _first_words(log.with_suffix(".err")) or str(error).strip()
            raise Unavailable(
                "Spark did not start.", why=why, hint=f"See {log} and {log.with_suffix('.err')}."
            ) from error


def _first_words(said: Path) -> str:
    """What a JVM that did not get far said of the reason; PySpark only knows that it is gone."""
    lines = said.read_text(encoding="utf-8", errors="replace").splitlines() if said.exists() else []
    reason = next((line.strip()[:500] for line in lines if _REASON.match(line)), "")
    return _THROWN.sub("", reason)


def _join(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    conf = SparkConf(_jvm=gateway.jvm)
    decided = conf.get("spark.master") or DEFAULT_MASTER
    if master is not None and master != decided:
        _log.warning("--master %s is not used: spark-submit has decided on %s", master, decided)
    for key, value in settings_for(decided, _scratch_folder()).items():
        conf.setIfMissing(key, value)
    conf.setAll(list(settings.items())).setMaster(with_attempts(decided))
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return _session(conf, gateway)
    except Exception as error:
        _remove(_scratch_folder())
        raise Unavailable(
            "Spark did not start.", why=str(error).strip(), hint="See what spark-submit has written."
        ) from error


def _session(conf: SparkConf, gateway: Any) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with without_pandas_warning():
        with _same_interrupt():
            context = SparkContext(conf=conf, gateway=gateway)
        return SparkSession(context)


@contextmanager
def _same_interrupt() -> Iterator[None]:
    """A context answers to Ctrl-C itself, by a call of the JVM and an exception wherever the main thread is. What is to
    come of it is for whoever runs the process to say."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None:  # a handler that Python knows
            signal.signal(signal.SIGINT, before)


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
    if gateway.proc is None:  # the JVM is not a child of this process
        return not _answers(gateway)
    try:
        return gateway.proc.wait(within) is not None
    except subprocess.TimeoutExpired:
        return False


def death_of(home: Path) -> Unavailable:
    """What is said when a JVM is gone that nobody has told to end."""
    return Unavailable("Spark has died.", hint=f"See the logs in {home / '.postroom' / 'logs'}.")


def _answers(gateway: Any) -> bool:
    from py4j.protocol import Py4JError

    try:
        gateway.jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        return False
    return True


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """PySpark warns of versions of pandas that it does not know, whether or not pandas is used. Here it is not."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        yield


@contextmanager
def _environment(scratch: Path, log: Path, *, master: str, python: str | None) -> Iterator[None]:
    """What the JVM and Spark's Python processes see. The shell's settings for another Spark are not for one that runs
    here."""
    before = dict(os.environ)
    if is_here(master):
        for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
            del os.environ[name]
        os.environ["SPARK_HOME"] = str(_spark_home(scratch, log, master))
        os.environ["SPARK_CONF_DIR"] = str(scratch)
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JAVA_HOME"] = str(find_java())
    # On a cluster the Python of the executors may be elsewhere than ours.
    os.environ["PYSPARK_PYTHON"] = python or os.environ.get("PYSPARK_PYTHON") or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["POSTROOM_SPARK_LOG"] = str(log.absolute())
    # A file in the present folder must not stand in for a module of the same name.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _spark_home(scratch: Path, log: Path, master: str) -> Path:
    import pyspark

    package = Path(pyspark.__file__).parent
    if not is_local_cluster(master):
        return package
    return make_spark_home(scratch / "home", package, work=log.with_suffix(".work").absolute())


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
