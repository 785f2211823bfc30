"""What is left of Spark's account of a failure: what a person needs to know."""

from __future__ import annotations

import uuid
from pathlib import Path

import pytest

from postroom.errors import Fault, MessageBoxUnavailable, StateError
from postroom.messagebox.intake.file_claims import FileClaim, format_problem
from postroom.spark.error_reasons import find_fault, format_reason

CALLING = "An error occurred while calling o98.collectToPython.\n: "
STACK = "\tat org.apache.spark.rdd.RDD.collect(RDD.scala:1122)\n\tat java.base/java.lang.Thread.run(Thread.java:840)\n"


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        pytest.param(
            f"{CALLING}org.apache.spark.SparkException: [FAILED_READ_FILE.NO_HINT] Encountered error while reading file"
            f" file:///in/a.csv.  SQLSTATE: KD001\n{STACK}"
            "Caused by: org.apache.spark.SparkIllegalArgumentException: CSV header does not conform to the schema.\n"
            f" Header: id, land\nExpected: region but found: land\n{STACK}\t... 1 more\n",
            "CSV header does not conform to the schema. Header: id, land Expected: region but found: land",
            id="innermost cause",
        ),
        pytest.param(
            f"{CALLING}org.apache.spark.SparkException: [FAILED_READ_FILE.PARQUET_COLUMN_DATA_TYPE_MISMATCH] Data type"
            f" mismatches when reading Parquet column [id]. SQLSTATE: KD001\n{STACK}"
            "Caused by: org.apache.spark.sql.execution.datasources.SchemaColumnConvertNotSupportedException:"
            f" column: [id], physicalType: BINARY\n{STACK}\t... 1 more\n",
            "Data type mismatches when reading Parquet column [id].",
            id="what Spark explains",
        ),
        pytest.param(
            f"{CALLING}org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data"
            f" source: nosuch. SQLSTATE: 42K02\n{STACK}Caused by: java.lang.ClassNotFoundException:"
            f" nosuch.DefaultSource\n{STACK}",
            "Failed to find the data source: nosuch.",
            id="no data source",
        ),
        pytest.param(
            "[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column with name `nope` cannot be resolved. SQLSTATE: 42703;\n"
            "'Project ['nope]\n+- Relation [id#17L] csv\n",
            "A column with name `nope` cannot be resolved.",
            id="without the plan",
        ),
        pytest.param(
            "An exception was thrown from the Python worker:\nTraceback (most recent call last):\n"
            '  File "a.py", line 25, in bad\n    at = 3\nValueError: two\nlines\n' + STACK + "Driver stacktrace:\n",
            "ValueError: two lines",
            id="what Python raised",
        ),
        pytest.param(
            "[STREAM_FAILED] Query terminated with exception: no\n=== Streaming Query ===\nIdentifier: x\n",
            "Query terminated with exception: no",
            id="without the query",
        ),
        ("", "Exception"),
    ],
)
def test_the_reason_is_one_line(said: str, reason: str) -> None:
    assert format_reason(Exception(said)) == reason


def test_a_reason_is_not_endless() -> None:
    assert format_reason(Exception("x" * 10_000)) == "x" * 499 + "…"


def test_the_reason_of_a_postroom_error_has_no_hint() -> None:
    assert format_reason(StateError("It is stopped.", why="Somebody did.", hint="Start it.")) == (
        "It is stopped. Somebody did."
    )


def test_an_error_that_cannot_even_say_what_it_is_has_a_reason() -> None:
    class Silent(Exception):
        _desc = "java.lang.IllegalArgumentException: maxPartitionBytes should be long, but was lots"

        def __str__(self) -> str:
            raise RuntimeError("the JVM does not answer")

    assert format_reason(Silent()) == "maxPartitionBytes should be long, but was lots"


def test_a_quarantined_file_is_reported_by_its_original_name() -> None:
    path = Path("/in/drop box/.postroom/id~a.csv")
    claim = FileClaim(interchange_id=uuid.uuid4(), name="a.csv", path=path, size=1, modified_ns=1)
    for said in (path, f"file:{path}", path.as_uri(), path.as_uri().replace("file://", "file:")):
        assert format_problem(claim, f"{said} is not a Parquet file.") == (
            f"could not be received: a.csv is not a Parquet file. It is kept as {path}."
        )


def raised_by_a_worker(line: str) -> Exception:
    return Exception(
        f"Job aborted. Traceback (most recent call last):\n  File x, line 1, in f\n    boom\n{line}\n\nmore"
    )


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (Exception("[FAILED_READ_FILE.NO_HINT] Encountered error while reading file x"), Fault.MESSAGE),
        (raised_by_a_worker("postroom.errors.MessageBoxUnavailable: The MessageBox is gone."), Fault.ENVIRONMENT),
        (raised_by_a_worker("postroom.errors.Unavailable: The worker is full."), Fault.ENVIRONMENT),
        (raised_by_a_worker("postroom.errors.NotAllowed: The login may not do this."), Fault.ENVIRONMENT),
        (raised_by_a_worker("postroom.errors.StorageFailure: out of range"), Fault.MESSAGE),
        (raised_by_a_worker("ValueError: what is this"), Fault.MESSAGE),
        (raised_by_a_worker("OSError: [Errno 28] No space left on device"), Fault.ENVIRONMENT),
        (raised_by_a_worker("MemoryError"), Fault.ENVIRONMENT),
        (raised_by_a_worker("OSError: [Errno 2] No such file or directory: 'x'"), Fault.MESSAGE),
        (
            Exception("Job aborted: java.io.IOException: No space left on device"),
            Fault.ENVIRONMENT,
        ),
        (
            Exception("Job aborted.\nCaused by: java.io.FileNotFoundException: /x (Too many open files)\n\tat x"),
            Fault.ENVIRONMENT,
        ),
        (Exception("Job 3 cancelled: ExecutorLostFailure (executor 1 exited)"), Fault.ENVIRONMENT),
        (MessageBoxUnavailable("The driver's own connection is lost."), Fault.ENVIRONMENT),
    ],
)
def test_the_fault_of_a_failed_job(error: Exception, fault: Fault) -> None:
    assert find_fault(error) is fault
