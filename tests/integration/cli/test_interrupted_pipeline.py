"""A signal during the start of Spark, or one that also ends Spark, is a clean exit and not an error."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest
from py4j.protocol import Py4JError

from postroom.errors import MessageBoxUnavailable, Unavailable
from postroom.spark import run as spark_run
from postroom.spark import session
from tests.integration.cli.conftest import CommandResult, Run

SIGNALS = [signal.SIGTERM, signal.SIGINT]
GONE = "py4j does not exist in the JVM"


class EndedSession:
    """A Spark session whose JVM ends at its first use. ``end`` is called at that moment."""

    def __init__(self, end: Callable[[], object]) -> None:
        self._end = end
        self._has_ended = False
        gateway = SimpleNamespace(proc=SimpleNamespace(wait=self._wait))
        self.sparkContext = SimpleNamespace(master="local[2]", _gateway=gateway, defaultParallelism=2)

    def _wait(self, seconds: float) -> int:
        if not self._has_ended:
            raise subprocess.TimeoutExpired("java", seconds)
        return 1

    def __getattr__(self, name: str) -> NoReturn:
        self._has_ended = True
        self._end()
        raise Py4JError(GONE)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "order.json").write_bytes(b'{"region": "EU"}')
    return tmp_path


def run_pipeline(home: Path, run: Run, *, once: bool = True) -> CommandResult:
    return run("pipeline", "run", "Main", "--home", home, *(["--once"] if once else []))


def reports_clean_exit(ran: CommandResult) -> bool:
    return (
        "The run was stopped before it was finished." in ran.err and "Traceback" not in ran.err and "bug" not in ran.err
    )


def fail_step(monkeypatch: pytest.MonkeyPatch, step: str, error: Exception, number: int | None) -> None:
    """Let a step of the start fail right after a signal."""

    def fail(*_: object, **__: object) -> NoReturn:
        if number is not None:
            signal.raise_signal(number)
        raise error

    monkeypatch.setattr(step, fail)


STEPS = {
    "the JVM starts": ("pyspark.java_gateway.launch_gateway", Py4JError(GONE)),
    "the session starts": (f"{session.__name__}._session", Py4JError(GONE)),
    "no session": (f"{spark_run.__name__}.create_session", Unavailable("Spark did not start.")),
}


@pytest.fixture(params=list(STEPS))
def step(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> tuple[str, Exception]:
    gateway = SimpleNamespace(jvm=None, proc=None)
    monkeypatch.setattr("pyspark.java_gateway.launch_gateway", lambda *_, **__: gateway)
    monkeypatch.setattr(session, "check_authentication", lambda *_: None)
    return STEPS[request.param]


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_during_the_start_of_spark_is_a_clean_exit(
    applied: Run, home: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[str, Exception], number: int
) -> None:
    fail_step(monkeypatch, *step, number)
    ran = run_pipeline(home, applied)
    assert ran.code == 6
    assert reports_clean_exit(ran), ran.err
    ran = run_pipeline(home, applied, once=False)
    assert (ran.code, ran.err) == (0, "")
    assert "have stopped: no messages" in ran.out


def test_a_failed_start_of_spark_is_an_error(
    applied: Run, home: Path, monkeypatch: pytest.MonkeyPatch, step: tuple[str, Exception]
) -> None:
    fail_step(monkeypatch, *step, None)
    for once in (True, False):
        ran = run_pipeline(home, applied, once=once)
        assert ran.code == 6
        assert "Spark did not start." in ran.err


def replace_session(monkeypatch: pytest.MonkeyPatch, opened: Any) -> None:
    monkeypatch.setattr(spark_run, "create_session", lambda *_, **__: opened)


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_that_also_ends_the_jvm_is_a_clean_exit(
    applied: Run, home: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    replace_session(monkeypatch, EndedSession(lambda: signal.raise_signal(number)))
    ran = run_pipeline(home, applied)
    assert ran.code == 6
    assert reports_clean_exit(ran), ran.err


def test_a_jvm_crash_is_an_error(applied: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    replace_session(monkeypatch, EndedSession(lambda: None))
    for once in (True, False):
        ran = run_pipeline(home, applied, once=once)
        assert ran.code == 6
        assert "Spark has died." in ran.err
        assert "Traceback" not in ran.err


@pytest.mark.parametrize("number", [None, signal.SIGTERM])
def test_a_lost_messagebox_is_an_error(
    applied: Run, home: Path, monkeypatch: pytest.MonkeyPatch, number: int | None
) -> None:
    replace_session(monkeypatch, EndedSession(lambda: None))
    lost = MessageBoxUnavailable("The MessageBox does not answer any more.")
    fail_step(monkeypatch, "postroom.spark.pipeline_process.select_locations_to_serve", lost, number)
    ran = run_pipeline(home, applied)
    assert ran.code == 6
    assert reports_clean_exit(ran) == (number is not None)
    assert ("The MessageBox does not answer any more." in ran.err) == (number is None)
    assert ("continues where it was" in ran.err) == (number is None)


def test_a_bug_is_still_reported(applied: Run, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fail_step(monkeypatch, f"{spark_run.__name__}._run_on_spark", ZeroDivisionError(), None)
    replace_session(monkeypatch, EndedSession(lambda: None))
    monkeypatch.setattr(spark_run, "has_died", lambda *_, **__: False)
    ran = run_pipeline(home, applied)
    assert ran.code == 70
    assert "This is a bug in Postroom" in ran.err
