"""Count the modules of Postroom that take part in the path of one file: from its folder to three send ports.

    python -m bench.path_of_a_file

It runs the example `orders`, lets four files pass so that everything is warm, traces five seconds without a file, and
then traces one more file. A module counts if one of its functions is called because of the file: between the drop and
the last delivery, and not while nothing happens. So heartbeats and polls that find nothing do not count. The pipeline
process, Spark's Python workers and the host are traced.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

#: Installed in every process as sitecustomize.py. It records the functions that are called, by phase (idle, file), and
#: writes them when the phase is `done`.
_TRACER = """
import inspect, os, pathlib, sys, threading, time
folder = pathlib.Path(os.environ["POSTROOM_TRACE_FOLDER"])
called = {"": set(), "idle": set(), "file": set(), "done": set()}
phase = [""]
def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_flags & inspect.CO_OPTIMIZED:  # a function, not the body of a module
        called[phase[0]].add((frame.f_globals.get("__name__", ""), frame.f_code.co_qualname))
def watch():
    while phase[0] != "done":
        phase[0] = (folder / "phase").read_text()
        time.sleep(0.01)
    because_of_the_file = called["file"] - called["idle"]
    modules = sorted({module for module, _ in because_of_the_file if module.startswith("postroom.")})
    (folder / f"{os.getpid()}.modules").write_text("\\n".join(modules))
def trace():
    threading.setprofile(profile)
    sys.setprofile(profile)
    threading.Thread(target=watch, daemon=True).start()
os.register_at_fork(after_in_child=trace)
trace()
"""
_ORDER = '{"region": "EU", "total": 12500, "priority": 3}'
_PORTS = ("europe", "big", "audit")
#: Files before the traced one, so that every worker of Spark has started.
_WARM_UP = 4
_IDLE_SECONDS = 5.0
_PATIENCE_SECONDS = 300.0


def count_modules(app: Path) -> list[str]:
    """Return the names of the modules that a file passes through."""
    with tempfile.TemporaryDirectory(prefix="postroom-path-") as folder:
        trace, home = Path(folder, "trace"), Path(folder, "home")
        trace.mkdir()
        _enter_phase(trace, "")
        (trace / "sitecustomize.py").write_text(_TRACER)
        with _run_up(app, home, trace):
            for number in range(_WARM_UP):
                _send(home, f"warm-{number}", number + 1)
            _enter_phase(trace, "idle")
            time.sleep(_IDLE_SECONDS)
            _enter_phase(trace, "file")
            _send(home, "traced", _WARM_UP + 1)
            _enter_phase(trace, "done")
            time.sleep(1.0)
        found = [file.read_text().split() for file in trace.glob("*.modules")]
    # The supervisor watches the folders and is not on the path.
    return sorted({name for names in found for name in names if not name.startswith("postroom.operations.")})


def _enter_phase(trace: Path, phase: str) -> None:
    """Replace the file that the tracers read atomically, and wait until each has read it."""
    (trace / "next").write_text(phase)
    (trace / "next").rename(trace / "phase")
    time.sleep(0.2)


@contextmanager
def _run_up(app: Path, home: Path, trace: Path) -> Iterator[None]:
    environment = {**os.environ, "PYTHONPATH": str(trace), "POSTROOM_TRACE_FOLDER": str(trace)}
    command = [sys.executable, "-m", "postroom", "up", str(app), "--home", str(home)]
    process = subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait()


def _send(home: Path, name: str, number: int) -> None:
    """Drop an order and wait until every port has delivered it."""
    _wait_for(lambda: (home / "in").is_dir())
    (home / "in" / f"{name}.json").write_text(_ORDER)
    _wait_for(lambda: all(len(list((home / "out" / port).glob("*.json"))) == number for port in _PORTS))


def _wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError("The file did not arrive at every send port.")
        time.sleep(0.02)


if __name__ == "__main__":
    modules = count_modules(Path("examples/orders/app.py"))
    sys.stdout.write("\n".join([*modules, f"{len(modules)} modules"]) + "\n")
