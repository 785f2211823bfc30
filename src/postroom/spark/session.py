"""The Spark session of a process, and its JVM.

    session = create_session(home, master="local[2]")
    ...
    end_session(session)

The JVM ends with the process that started it, even if that is killed: it reads from a pipe to that process. Under
``spark-submit`` the JVM has started this process, and the master and the Java version are given.
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
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

from postroom.errors import StateError, Unavailable
from postroom.files.private_folder import private_folder, remove_private_folder
from postroom.spark.error_reasons import format_reason
from postroom.spark.java import find_java
from postroom.spark.settings import (
    DRIVER_LOG4J,
    add_secret,
    add_task_attempts,
    check_authentication,
    driver_options,
    is_local_cluster,
    is_this_machine,
    make_authentication_settings,
    make_settings,
    reject_secret_arguments,
)

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_log = logging.getLogger(__name__)

DEFAULT_MASTER = "local[*]"
#: The line in which the JVM, or Spark's launcher, reports why it ends.
_REASON = re.compile(
    r"Error|Terminating due to|Exception in thread|Caused by|Invalid |Unrecognized |[\w.]+(Exception|Error):"
)
_THROWN = re.compile(r"^Exception in thread \"main\" [\w.]+: ")
_STOP_SECONDS = 20.0
_HINT = (
    "Start the pipeline with the jar: --conf spark.jars=FILE, or --conf spark.jars.packages=GROUP:NAME:VERSION. "
    "Nothing is lost: what waits is processed then."
)


def create_session(
    home: Path, *, master: str | None = None, name: str = "spark", settings: Mapping[str, str] | None = None
) -> SparkSession:
    """Start a JVM and create a session in it. A process has one session at a time.

    The log files are in the folder of logs under ``home`` and begin with ``name``. ``settings`` are Spark's, and take
    precedence over ours. Under ``spark-submit`` the session is created in the JVM that has started this process, and
    the settings of that JVM take precedence, too."""
    from pyspark import SparkContext

    if SparkContext._gateway is not None:
        raise StateError("This process has a Spark session already.", hint="End it before you create another.")
    reduce_py4j_logging()
    _remove_stale_folders()
    reject_secret_arguments(settings or {})
    if _is_submitted():
        return _join(master, settings or {})
    return _start(home, master or DEFAULT_MASTER, name, settings or {})


def _is_submitted() -> bool:
    """Return True if ``spark-submit`` has started this process."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _start(home: Path, master: str, name: str, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    scratch = _scratch_folder()
    log = home / ".postroom" / "logs" / f"{name}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    (scratch / "log4j2.properties").write_text(DRIVER_LOG4J)
    chosen = {**make_settings(master, scratch), **make_authentication_settings(master), **settings}
    options = driver_options(chosen["spark.driver.memory"], scratch)
    chosen["spark.driver.extraJavaOptions"] = f"{options} {chosen.get('spark.driver.extraJavaOptions', '')}".strip()
    conf = SparkConf(loadDefaults=False).setAll(list(chosen.items()))
    conf.setMaster(add_task_attempts(master))
    gateway = None
    with _environment(scratch, log, master=master, python=chosen.get("spark.pyspark.python")):
        try:
            with _rotate(log.with_suffix(".err")).open("wb") as output, _import_meanwhile():
                gateway = launch_gateway(  # type: ignore[no-untyped-call]
                    conf, popen_kwargs={"stdout": output, "stderr": subprocess.STDOUT}
                )
            check_authentication(SparkConf(_jvm=gateway.jvm), master)
            add_secret(conf, master)
            return _session(conf, gateway)
        except Exception as error:
            _end_jvm(gateway)
            _remove(scratch)
            if isinstance(error, StateError):
                raise
            why = _read_reason(log.with_suffix(".err")) or str(error).strip()
            raise Unavailable(
                "Spark did not start.", why=why, hint=f"See {log} and {log.with_suffix('.err')}."
            ) from error


@contextmanager
def _import_meanwhile() -> Iterator[None]:
    """Import modules in a thread during the block. PySpark imports them, and pandas with them, at its first call of the
    JVM."""

    def import_modules() -> None:
        with without_pandas_warning(), suppress(ImportError):
            import_module("pyspark.testing.utils")

    thread = threading.Thread(target=import_modules, name="imports")
    thread.start()
    try:
        yield
    finally:
        thread.join()


def _read_reason(output: Path) -> str:
    """Return why a JVM did not start, from its output. PySpark only knows that it is gone."""
    lines = output.read_text(encoding="utf-8", errors="replace").splitlines() if output.exists() else []
    reason = next((line.strip()[:500] for line in lines if _REASON.match(line)), "")
    return _THROWN.sub("", reason)


def _join(master: str | None, settings: Mapping[str, str]) -> SparkSession:
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    gateway = launch_gateway()  # type: ignore[no-untyped-call]
    conf = SparkConf(_jvm=gateway.jvm)
    given = conf.get("spark.master") or DEFAULT_MASTER
    if master is not None and master != given:
        _log.warning("--master %s is ignored: spark-submit has set the master to %s", master, given)
    check_authentication(conf, given)
    for key, value in {**make_settings(given, _scratch_folder()), **make_authentication_settings(given)}.items():
        conf.setIfMissing(key, value)
    conf.setAll(list(settings.items())).setMaster(add_task_attempts(given))
    add_secret(conf, given)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return _session(conf, gateway)
    except Exception as error:
        _remove(_scratch_folder())
        raise Unavailable(
            "Spark did not start.", why=str(error).strip(), hint="See the output of spark-submit."
        ) from error


def _session(conf: SparkConf, gateway: Any) -> SparkSession:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    with without_pandas_warning():
        with _keep_sigint_handler():
            context = SparkContext(conf=conf, gateway=gateway)
        return SparkSession(context)


@contextmanager
def _keep_sigint_handler() -> Iterator[None]:
    """Restore the handler of Ctrl-C after the block. A SparkContext installs its own, which calls the JVM and raises in
    the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if before is not None:  # it was installed from Python
            signal.signal(signal.SIGINT, before)


def end_session(session: SparkSession) -> None:
    """Stop the session and its JVM. Return when the JVM has ended."""
    with suppress(Exception):  # the JVM may be gone already
        session.stop()
    _end_jvm()
    _remove(_scratch_folder())


def has_died(session: SparkSession, *, within: float = 5.0) -> bool:
    """Return True if the JVM of the session ends within these seconds. Its sockets close before its process ends."""
    gateway = session.sparkContext._gateway
    if gateway is None:
        return True
    if gateway.proc is None:  # the JVM is not a child of this process
        return not _answers(gateway)
    try:
        return gateway.proc.wait(within) is not None
    except subprocess.TimeoutExpired:
        return False


def spark_died_error(home: Path) -> Unavailable:
    """Return the error for a JVM that ended unexpectedly."""
    return Unavailable("Spark has died.", hint=f"See the logs in {home / '.postroom' / 'logs'}.")


def _answers(gateway: Any) -> bool:
    from py4j.protocol import Py4JError

    try:
        gateway.jvm.java.lang.System.nanoTime()
    except (Py4JError, OSError):
        return False
    return True


def reduce_py4j_logging() -> None:
    """Log only warnings of Py4J, each in one line. It logs every connection, and a traceback for a JVM that has ended,
    in addition to the exception that it raises."""
    logging.getLogger("py4j").setLevel(logging.WARNING)
    # Some records go to the root logger, and the filters of a logger only see its own records.
    logging.getLogger().addFilter(_remove_py4j_traceback)


def _remove_py4j_traceback(record: logging.LogRecord) -> bool:
    if "py4j" in record.pathname and record.exc_info:
        record.msg, record.args = "%s %s", (record.getMessage(), record.exc_info[1])
        record.exc_info = record.exc_text = None
    return True


@contextmanager
def without_pandas_warning() -> Iterator[None]:
    """Suppress PySpark's warning about unsupported versions of pandas. Pandas is not used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
        yield


@contextmanager
def _environment(scratch: Path, log: Path, *, master: str, python: str | None) -> Iterator[None]:
    """Set the environment of the JVM and of Spark's Python processes. Settings of the shell for another Spark are
    removed if Spark runs on this machine."""
    before = dict(os.environ)
    if is_this_machine(master):
        for name in [name for name in os.environ if name.startswith(("SPARK_", "PYSPARK_"))]:
            del os.environ[name]
        os.environ["SPARK_HOME"] = str(_spark_home(scratch, log, master))
        os.environ["SPARK_CONF_DIR"] = str(scratch)
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    os.environ["JAVA_HOME"] = str(find_java())
    # On a cluster the executors may have another path to Python.
    os.environ["PYSPARK_PYTHON"] = python or os.environ.get("PYSPARK_PYTHON") or sys.executable
    os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    os.environ["POSTROOM_SPARK_LOG"] = str(log.absolute())
    # A file in the current folder must not hide a module of the same name.
    os.environ["PYTHONSAFEPATH"] = "1"
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _spark_home(scratch: Path, log: Path, master: str) -> Path:
    import pyspark

    work = log.with_suffix(".work").absolute() if is_local_cluster(master) else None
    return make_spark_home(scratch / "home", Path(pyspark.__file__).parent, work=work)


def make_spark_home(home: Path, package: Path, *, work: Path | None = None) -> Path:
    """Create a SPARK_HOME of links to the installed package, without the folder ``python``.

    That folder has an archive of PySpark, which Spark's Python processes prefer to the installed package. Python has to
    compile a module of an archive at every import, which takes half a second in each of these processes.

    The executors of a ``local-cluster[...]`` write into the folder ``work`` below SPARK_HOME, which would be inside the
    package. The link leads to ``work``, which is emptied."""
    home.mkdir(parents=True, exist_ok=True)
    for entry in package.iterdir():
        if entry.name not in ("python", "work"):
            (home / entry.name).symlink_to(entry)
    if work is not None:
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        (home / "work").symlink_to(work)
    return home


def _rotate(file: Path) -> Path:
    """Keep one previous version of a file, because it may explain a crash. Return the path to write to."""
    with suppress(FileNotFoundError):
        file.replace(file.with_suffix(".err.old"))
    return file


def _end_jvm(started: Any = None) -> None:
    """End the JVM of the session, or one that was started and has no session yet."""
    from pyspark import SparkContext

    gateway, SparkContext._gateway, SparkContext._jvm = SparkContext._gateway, None, None
    gateway = gateway or started
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
    """Return the folder of this process for sockets, spilled data and libraries. Its path is short."""
    return private_folder(f"spark-{os.getpid()}")


def _remove_stale_folders() -> None:
    """Remove the scratch folders of killed processes, also of one that had the pid of this process."""
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


def check_format(session: SparkSession, format: str) -> None:
    """Raise StateError if the session has no data source for a format.

    Without its jar, every batch would fail and suspend its messages. This is checked before a message is taken, so that
    the messages wait."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    jvm: Any = session._jvm
    state: Any = session._jsparkSession.sessionState()
    if state.dataSourceManager().dataSourceExists(format):
        return  # it is written in Python
    try:
        jvm.org.apache.spark.sql.execution.datasources.DataSource.lookupDataSource(format, state.conf())
    except (PySparkException, Py4JJavaError) as error:
        raise StateError(
            f"This Spark session cannot read or write the format {format!r}.", why=format_reason(error), hint=_HINT
        ) from None


def check_driver(session: SparkSession, driver: str) -> None:
    """Raise StateError if the session does not have the class of a JDBC driver."""
    from py4j.protocol import Py4JJavaError

    jvm: Any = session._jvm
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(driver)
    except Py4JJavaError:
        raise StateError(
            f"This Spark session does not have the JDBC driver {driver}.",
            why="The class is in none of its jars.",
            hint=_HINT,
        ) from None
