"""The settings of Spark for each kind of master: one JVM, processes on this machine, or a cluster.

Without authentication every user of the machine, and of the network of a cluster, can run code in the driver. Who
creates the shared secret depends on the master:

- ``local``, YARN and Kubernetes: Spark creates one for each session and distributes it.
- ``local-cluster``: Postroom creates one. It is set when the JVM runs, because arguments are visible to all users. Its
  master and workers also have web pages, which Spark cannot turn off. Nobody gets a token for them.
- Standalone: the cluster has a secret, which its administrator writes to spark-defaults.conf on each machine.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from postroom.errors import StateError

if TYPE_CHECKING:
    from pyspark import SparkConf

TASK_ATTEMPTS = 4

#: The settings for every master.
_SETTINGS = {
    "spark.app.name": "postroom",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    # Maximum number of rows of a bulk file in one call of the Message Agent.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # A bulk job must not keep the small batches of other locations waiting until it ends. Splits are small, because a
    # crash repeats at most one split for each task.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.files.maxPartitionBytes": "16m",
    "spark.python.worker.reuse": "true",
    "spark.python.worker.faulthandler.enabled": "true",
    "spark.sql.execution.pyspark.udf.faulthandler.enabled": "true",
    # The receive stream has no expressions that generated code makes faster. A batch is planned 20 ms sooner.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.stopTimeout": "20s",
    # The default forks a process for each access to a path: about 40 ms for each write of a log.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
    # A batch of the receive stream does not need checksums of logs that are deleted at the next start, an adaptive
    # plan, or a formatted plan for the UI.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    # No checksum files for the checkpoint, which is on the driver's own disk with every master.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

#: Without the optimising compiler. Most work of a pipeline is done outside the JVM, and on a small machine the compiler
#: costs more than it saves (40 % less CPU until the first batch without it).
_SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError"

_DRIVERS_OPTIONS = "spark.driver.extraJavaOptions"
_OPTIMISING = "-XX:TieredStopAtLevel=4"

_LOGGERS = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
# These warnings need no action.
logger.native.name = org.apache.hadoop.util.NativeCodeLoader
logger.native.level = error
logger.conf.name = org.apache.spark.SparkConf
logger.conf.level = error
logger.trigger.name = org.apache.spark.sql.execution.streaming.runtime.ProcessingTimeExecutor
logger.trigger.level = error
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{yyyy-MM-dd'T'HH:mm:ss.SSS}{UTC}Z %p %c{1}: %m%n%ex
"""

#: The driver's log: a rotated file.
DRIVER_LOG4J = f"""\
{_LOGGERS}
appender.out.type = RollingFile
appender.out.fileName = ${{env:POSTROOM_SPARK_LOG}}
appender.out.filePattern = ${{env:POSTROOM_SPARK_LOG}}.%i
appender.out.policies.type = Policies
appender.out.policies.size.type = SizeBasedTriggeringPolicy
appender.out.policies.size.size = 10MB
appender.out.strategy.type = DefaultRolloverStrategy
appender.out.strategy.max = 3
"""

#: The log of an executor in its own process: the file that its output goes to anyway.
EXECUTOR_LOG4J = f"""\
{_LOGGERS}
appender.out.type = Console
appender.out.target = SYSTEM_ERR
"""
_EXECUTOR_LOG4J_NAME = "executor-log4j2.properties"
AUTHENTICATE = "spark.authenticate"
SECRET = "spark.authenticate.secret"
ENCRYPT = "spark.network.crypto.enabled"

#: The filter of all web pages, and the key of the tokens that it requires.
UI_FILTERS = "spark.ui.filters"
_TOKEN_FILTER = "org.apache.spark.ui.JWSFilter"
_TOKEN_KEY = f"spark.{_TOKEN_FILTER}.param.secretKey"

_SECRET_BYTES = 32


def is_local(master: str) -> bool:
    """Return True if everything runs in one JVM and its Python workers."""
    return re.match(r"local(\[|$)", master) is not None


def is_local_cluster(master: str) -> bool:
    """Return True if the session has its own cluster of processes on this machine."""
    return master.startswith("local-cluster[")


def is_this_machine(master: str) -> bool:
    """Return True if everything runs on this machine."""
    return is_local(master) or is_local_cluster(master)


def add_task_attempts(master: str) -> str:
    """Add the number of task attempts to a local master. Its default is one."""
    if master == "local":
        return f"local[1,{TASK_ATTEMPTS}]"
    return re.sub(r"^local\[\s*(\d+|\*)\s*\]$", rf"local[\1,{TASK_ATTEMPTS}]", master)


def make_settings(master: str, scratch: Path) -> dict[str, str]:
    """Return our settings for a master. ``scratch`` is a folder of this process with a short path."""
    settings = dict(_SETTINGS)
    if is_this_machine(master):
        settings |= {
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
            # Saves 40 ms for each Python stage. The path of a socket has at most about a hundred bytes.
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": str(scratch),
        }
    if is_local_cluster(master):
        log4j = scratch / _EXECUTOR_LOG4J_NAME
        log4j.write_text(EXECUTOR_LOG4J)
        settings["spark.executor.extraJavaOptions"] = f"{_SMALL_JVM} -Dlog4j2.configurationFile=file:{log4j}"
    return settings


def driver_options(memory: str, scratch: Path) -> str:
    """Return the options of the driver's JVM. The size of its heap is fixed."""
    return f"-Xms{memory} {_SMALL_JVM} -Djava.io.tmpdir={scratch} -Duser.timezone=UTC"


def has_bulk_settings(settings: Mapping[str, str]) -> bool:
    """Return True for the result of ``add_bulk_settings``."""
    return _OPTIMISING in settings.get(_DRIVERS_OPTIONS, "").split()


def add_bulk_settings(settings: Mapping[str, str] | None) -> dict[str, str]:
    """Return the settings of a process that reads bulk files, with the optimising compiler. Reading takes minutes, and
    less than half of the CPU with it (9 µs for each row in the JVM instead of 24), after 14 s of compilation."""
    chosen = dict(settings or {})
    if has_bulk_settings(chosen):
        return chosen
    # The last option takes effect: ours is after the default and before the user's.
    chosen[_DRIVERS_OPTIONS] = f"{_OPTIMISING} {chosen.get(_DRIVERS_OPTIONS, '')}".strip()
    return chosen


def make_authentication_settings(master: str) -> dict[str, str]:
    """Return the settings for a master. Connections between machines are also encrypted."""
    if is_this_machine(master):
        return {AUTHENTICATE: "true"}
    return {AUTHENTICATE: "true", ENCRYPT: "true"}


def reject_secret_arguments(settings: Mapping[str, str]) -> None:
    """Raise StateError if the secret is among settings that become arguments of the JVM."""
    if SECRET in settings:
        raise StateError(
            f"{SECRET} cannot be set with --conf.",
            why="Arguments are visible to all users of the machine.",
            hint="Write it to spark-defaults.conf, which only Spark's account can read.",
        )


def add_secret(conf: SparkConf, master: str) -> None:
    """Set new secrets for the connections and the web pages of a ``local-cluster``, unless it has them. Call it when
    the JVM has been started."""
    if not is_local_cluster(master):
        return
    if not conf.contains(SECRET):
        conf.set(SECRET, secrets.token_hex(_SECRET_BYTES))
    if not conf.contains(UI_FILTERS):
        conf.set(UI_FILTERS, _TOKEN_FILTER)
        conf.set(_TOKEN_KEY, secrets.token_urlsafe(_SECRET_BYTES))


def check_authentication(conf: SparkConf, master: str) -> None:
    """Raise StateError if the connections of a cluster would not be authenticated."""
    if is_this_machine(master):
        return
    if conf.get(AUTHENTICATE, "false") != "true":
        raise StateError(
            f"Spark does not authenticate its connections on {master}.",
            why="Anyone who can reach the driver or an executor could run code there and read messages.",
            hint=f"Set {AUTHENTICATE}=true and {ENCRYPT}=true, with spark-submit --conf or in spark-defaults.conf.",
        )
    if not master.startswith(("yarn", "k8s://")) and not conf.contains(SECRET):
        raise StateError(
            f"There is no secret for the cluster {master}.",
            why="A standalone cluster shares one secret between its machines and its applications.",
            hint=f"Write {SECRET} to spark-defaults.conf on each machine, readable for Spark's account alone.",
        )
