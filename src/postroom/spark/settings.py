"""What Spark is told, by where it runs: in this process, in processes of this machine, or on a cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

TASK_ATTEMPTS = 4

#: What holds for every master.
_SETTINGS = {
    "spark.app.name": "postroom",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
    "spark.sql.session.timeZone": "UTC",
    # A row is a claimed file. This many at a time are handed to the Message Agent, which makes transactions of them.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
    # A bulk job must not keep the small batches of other locations waiting until it ends; and what is redone after a
    # crash, at most a split of it for each task, is to be little.
    "spark.scheduler.mode": "FAIR",
    "spark.sql.files.maxPartitionBytes": "16m",
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
    # What a batch of the receive stream does without: checksums of logs that are thrown away at the next start, a plan
    # that is looked at again while it runs, and a drawing of the plan for nobody.
    "spark.sql.streaming.checkpoint.fileChecksum.enabled": "false",
    "spark.sql.adaptive.streaming.stateless.enabled": "false",
    "spark.sql.ui.explainMode": "simple",
    # No checksum files beside the checkpoint's, which are on the driver's own disk, whatever the master.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
}

#: The code is compiled once and lightly: most of what a pipeline does is outside the JVM, and the optimising compiler
#: would take more of a small machine than it gives back (40 % less CPU until the first batch).
_SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:+ExitOnOutOfMemoryError"

_DRIVERS_OPTIONS = "spark.driver.extraJavaOptions"
_OPTIMISING = "-XX:TieredStopAtLevel=4"

_LOGGERS = """\
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
# These have nothing to tell that could be acted on.
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

#: The driver's log: a file that turns over.
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

#: That of an executor in a process of its own: into the file that its output goes to anyway.
EXECUTOR_LOG4J = f"""\
{_LOGGERS}
appender.out.type = Console
appender.out.target = SYSTEM_ERR
"""
_EXECUTOR_LOG4J_NAME = "executor-log4j2.properties"


def is_local(master: str) -> bool:
    """Whether everything runs in one JVM and its Python workers."""
    return re.match(r"local(\[|$)", master) is not None


def is_local_cluster(master: str) -> bool:
    """Whether a cluster is made for this session, of processes on this machine."""
    return master.startswith("local-cluster[")


def is_here(master: str) -> bool:
    """Whether everything runs on this machine, as far as the master's name tells."""
    return is_local(master) or is_local_cluster(master)


def with_attempts(master: str) -> str:
    """Local masters try a task once unless told otherwise."""
    if master == "local":
        return f"local[1,{TASK_ATTEMPTS}]"
    return re.sub(r"^local\[\s*(\d+|\*)\s*\]$", rf"local[\1,{TASK_ATTEMPTS}]", master)


def settings_for(master: str, scratch: Path) -> dict[str, str]:
    """Ours, for a session of this master; ``scratch`` is a folder of this process here, with a short path."""
    settings = dict(_SETTINGS)
    if is_here(master):
        settings |= {
            "spark.local.dir": str(scratch),
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.driver.host": "localhost",
            "spark.driver.bindAddress": "127.0.0.1",
            # Saves 40 ms a Python stage. A socket's path has room for about a hundred bytes.
            "spark.python.unix.domain.socket.enabled": "true",
            "spark.python.unix.domain.socket.dir": str(scratch),
        }
    if is_local_cluster(master):
        log4j = scratch / _EXECUTOR_LOG4J_NAME
        log4j.write_text(EXECUTOR_LOG4J)
        settings["spark.executor.extraJavaOptions"] = f"{_SMALL_JVM} -Dlog4j2.configurationFile=file:{log4j}"
    return settings


def driver_options(memory: str, scratch: Path) -> str:
    """Options of the JVM that a process of ours starts for itself; a fixed heap."""
    return f"-Xms{memory} {_SMALL_JVM} -Djava.io.tmpdir={scratch} -Duser.timezone=UTC"


def for_bulk(settings: Mapping[str, str] | None) -> dict[str, str]:
    """The settings of a process that reads bulk files: with the optimising compiler. Reading goes on for minutes, and
    takes less than half of the CPU with it (9 µs a row in the JVM instead of 24), after 14 s of compiling."""
    given = dict(settings or {})
    # The later option counts: ours goes before what was given, and after what every process has.
    given[_DRIVERS_OPTIONS] = f"{_OPTIMISING} {given.get(_DRIVERS_OPTIONS, '')}".strip()
    return given
