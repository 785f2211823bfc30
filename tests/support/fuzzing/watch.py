"""Run a fuzz target in a process of its own, so that a dead or hanging parser is a result too."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import psutil

from tests.support.fuzzing.run_target import CURRENT_SIZE, HANG_SECONDS, save_input

_ROOT = Path(__file__).parents[3]
#: Inputs that are problems, relative to the folder of the repository.
FOUND = ".fuzz"
#: A process that used this much CPU time without finishing an input is killed.
_KILL_SECONDS = 4 * HANG_SECONDS
_POLL_SECONDS = 0.5


@dataclass(frozen=True, kw_only=True)
class FuzzProblem:
    """``kind`` is crash, hang or lost. ``input`` is the path of the input."""

    kind: str
    text: str
    input: str


@dataclass(frozen=True, kw_only=True)
class FuzzResult:
    target: str
    inputs: int
    problems: tuple[FuzzProblem, ...]

    def count(self, kind: str) -> int:
        return sum(problem.kind == kind for problem in self.problems)


def fuzz(name: str, *, seed: int, seconds: float = math.inf, inputs: int | None = None) -> FuzzResult:
    """Run a target for some time, or until it has tried a number of inputs."""
    with tempfile.NamedTemporaryFile() as current, tempfile.TemporaryFile() as output:
        current.truncate(CURRENT_SIZE)
        command = [sys.executable, "-m", "tests.support.fuzzing.run_target", name, "--seed", str(seed)]
        command += ["--seconds", str(seconds), "--current", current.name, "--found", str(_ROOT / FOUND)]
        command += [] if inputs is None else ["--inputs", str(inputs)]
        process = subprocess.Popen(command, cwd=_ROOT, stdout=output)
        try:
            is_hanging = _wait(process, Path(current.name))
        finally:
            process.kill()
            process.wait()
        if process.returncode == 0:
            output.seek(0)
            found = json.load(output)
            problems = tuple(FuzzProblem(**problem) for problem in found["problems"])
            return FuzzResult(target=name, inputs=found["inputs"], problems=problems)
        count, data = _read_current(Path(current.name))
        kind, text = "crash", f"the process ended with {process.returncode}"
        if is_hanging:
            kind, text = "hang", f"more than {_KILL_SECONDS:g} seconds of CPU time"
        problem = FuzzProblem(kind=kind, text=text, input=save_input(name, data, _ROOT / FOUND))
        return FuzzResult(target=name, inputs=count, problems=(problem,))


def _wait(process: subprocess.Popen[bytes], current: Path) -> bool:
    """Wait for the end of the process. Return True if it hangs in one input."""
    watched = psutil.Process(process.pid)
    last_count, used_before = -1, 0.0
    while True:
        try:
            process.wait(_POLL_SECONDS)
            return False
        except subprocess.TimeoutExpired:
            count, used = _read_current(current)[0], sum(watched.cpu_times()[:2])
            if count != last_count:
                last_count, used_before = count, used
            elif count and used - used_before > _KILL_SECONDS:
                return True


def _read_current(current: Path) -> tuple[int, bytes]:
    content = current.read_bytes()
    size = int.from_bytes(content[8:16], "big")
    return int.from_bytes(content[:8], "big"), content[16 : 16 + size]
