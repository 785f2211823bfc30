"""Run one fuzz target in this process and print the result as JSON.

    python -m tests.support.fuzzing.run_target json --seed 7 --seconds 60 --current FILE

``FILE`` always contains the number of inputs and the current input, for the process that watches this one. An input
whose result has not occurred before becomes a seed for further mutations.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import mmap
import random
import sys
import time
import traceback
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

from postroom.errors import PostroomError
from tests.support.fuzzing.mutations import MAX_SIZE
from tests.support.fuzzing.target import MessageLost, Target, describe_failure
from tests.support.fuzzing.targets import TARGETS

#: An input that takes more CPU time than this is a hang.
HANG_SECONDS = 5.0
#: The size of the file with the current input: the number of inputs, the size of the input, the input.
CURRENT_SIZE = MAX_SIZE + 16
_MAX_CORPUS = 2_000


class Run:
    """A run of a target: the inputs so far and the problems found."""

    def __init__(self, target: Target, seed: int, current: Path) -> None:
        self._target = target
        self._dice = random.Random(seed)
        self._corpus = list(target.seeds)
        self._results: set[str] = set()
        self.inputs = 0
        #: By kind and place: the text and the input.
        self.problems: dict[tuple[str, str], tuple[str, bytes]] = {}
        with current.open("r+b") as file:
            self._current = mmap.mmap(file.fileno(), CURRENT_SIZE)

    def run(self, *, seconds: float, inputs: int) -> None:
        """Try the seeds, then mutations of them, until the time or the number of inputs is reached."""
        deadline = time.monotonic() + seconds
        for seed in self._target.seeds:
            self._try(seed)
        while self.inputs < inputs and time.monotonic() < deadline:
            self._try(self._mutate(self._dice.choice(self._corpus)))

    def _mutate(self, data: bytes) -> bytes:
        for _ in range(self._dice.choice((1, 1, 2, 3, 6))):
            data = self._dice.choice(self._target.mutations)(self._dice, data)[:MAX_SIZE]
        return data

    def _try(self, data: bytes) -> None:
        self.inputs += 1
        self._current[0:16] = self.inputs.to_bytes(8, "big") + len(data).to_bytes(8, "big")
        self._current[16 : 16 + len(data)] = data
        started = time.process_time()
        try:
            result = self._target.check(data)
        except PostroomError as error:
            result = describe_failure(error)
        except MessageLost as lost:
            result = ""
            self._record("lost", str(lost)[:60], str(lost), data)
        except Exception as error:
            result = ""
            place = traceback.extract_tb(error.__traceback__)[-1]
            self._record(
                "crash", f"{type(error).__name__} {place.filename}:{place.lineno}", traceback.format_exc(), data
            )
        if (taken := time.process_time() - started) > HANG_SECONDS:
            self._record("hang", "", f"{taken:.1f} seconds of CPU time", data)
        if result not in self._results and len(self._corpus) < _MAX_CORPUS:
            self._results.add(result)
            self._corpus.append(data)

    def _record(self, kind: str, place: str, text: str, data: bytes) -> None:
        known = self.problems.get((kind, place))
        if known is None or len(data) < len(known[1]):
            self.problems[kind, place] = (text, data)


def save_input(name: str, data: bytes, folder: Path) -> str:
    """Write an input to the folder and return its path."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-{hashlib.sha256(data).hexdigest()[:12]}"
    path.write_bytes(data)
    return str(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--inputs", type=int, default=sys.maxsize)
    parser.add_argument("--current", type=Path, required=True)
    parser.add_argument("--found", type=Path, required=True, help="folder for inputs that are problems")
    chosen = parser.parse_args()
    # A warning of a library about an input is neither a crash nor shown.
    warnings.simplefilter("ignore")
    with TemporaryDirectory() as folder:
        run = Run(TARGETS[chosen.target](Path(folder)), chosen.seed, chosen.current)
        run.run(seconds=chosen.seconds, inputs=chosen.inputs)
    problems = [
        {"kind": kind, "text": text, "input": save_input(chosen.target, data, chosen.found)}
        for (kind, _), (text, data) in run.problems.items()
    ]
    json.dump({"inputs": run.inputs, "problems": problems}, sys.stdout)


if __name__ == "__main__":
    main()
