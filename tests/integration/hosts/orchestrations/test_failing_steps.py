"""A step has its effect once for each attempt, whatever it raises or returns. Then its instance is suspended."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration.hosts.conftest import StartHost
from tests.integration.hosts.orchestrations.test_bad_orchestrations import wait_for_suspended
from tests.support.box import Box
from tests.support.orchestrations import apply_orchestrations, publish
from tests.support.recording_adapter import RecordingAdapter

CODE = """
from pathlib import Path

class LibraryExit(BaseException):
    pass

class BrokenList(list):
    def __iter__(self):
        raise LibraryExit("broken")

def exit_library() -> None:
    raise LibraryExit("enough")

def nest(depth: int) -> object:
    return [nest(depth - 1)] if depth else None

def charge(what: str) -> object:
    with Path({file!r}).open("a") as file:
        file.write(what)
    return {{"exit": exit_library, "deep": lambda: nest(490), "object": object, "broken": BrokenList}}[what]()

@app.orchestration(activate=Kind == "order", host="Default")
async def pay(order: Message) -> None:
    await orchestrations.step(charge, order.data.decode())
"""


@pytest.mark.parametrize(
    ("what", "code", "reason"),
    [
        ("exit", "ORCHESTRATION", "LibraryExit: enough"),
        ("deep", "STEP_RESULT", "nested more than 100 deep"),
        ("object", "STEP_RESULT", "The journal cannot store a value of the type object"),
        ("broken", "STEP_RESULT", "LibraryExit: broken"),
    ],
)
def test_a_step_runs_once_and_its_instance_is_suspended(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, what: str, code: str, reason: str
) -> None:
    calls = tmp_path / "calls"
    apply_orchestrations(box, tmp_path, CODE.format(file=str(calls)))
    start_host(recorder)
    publish(box, "order", what)
    error_code, description = wait_for_suspended(box)
    assert error_code == code
    assert reason in description
    assert calls.read_text() == what
