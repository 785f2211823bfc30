"""An error that only one instance has suspends this instance, whatever its type, and does not stop the others."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.messagebox.maintenance.check import check
from tests.integration.hosts.conftest import StartHost
from tests.integration.hosts.orchestrations.test_bad_orchestrations import wait_for_suspended
from tests.support.box import Box
from tests.support.changes import resume
from tests.support.orchestrations import apply_orchestrations, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

#: The body of a message is read when the persistence point is stored, outside of the code of the orchestration.
CODE = """
from dataclasses import replace
from pathlib import Path
from postroom.message import FileSlice

class LibraryExit(BaseException):
    pass

class BrokenBody:
    size = 3

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def chunks(self):
        with Path({file!r}).open("a") as file:
            file.write(".")
        raise self.error

BODIES = {{
    "missing": FileSlice(path=Path({file!r} + " is missing"), length=3),
    "exit": BrokenBody(LibraryExit("enough")),
    "recursion": BrokenBody(RecursionError("too deep")),
    "memory": BrokenBody(MemoryError("too large")),
}}

@app.orchestration(activate=Kind == "order", host="Default")
async def tell(order: Message) -> None:
    message = Message.of(order.data)
    body = BODIES.get(order.data.decode())
    if body is not None:
        message = replace(message, parts=(replace(message.parts[0], body=body),))
    await orchestrations.send(message, to="Out")
"""


@pytest.mark.parametrize(
    ("body", "reason"),
    [("missing", "FileNotFoundError"), ("exit", "LibraryExit: enough"), ("recursion", "RecursionError: too deep")],
)
def test_a_body_that_cannot_be_read_suspends_only_its_sender(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, body: str, reason: str
) -> None:
    apply_orchestrations(box, tmp_path, CODE.format(file=str(tmp_path / "reads")))
    publish(box, "order", "first", body, "last")
    start_host(recorder)
    code, description = wait_for_suspended(box)
    assert code == "ORCHESTRATION"
    assert reason in description
    wait_until(lambda: sent(recorder) == [b"first", b"last"], what="the messages of the other instances")
    assert check(box.connection) == []


def test_an_instance_without_enough_memory_is_suspended_after_five_attempts(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    reads = tmp_path / "reads"
    apply_orchestrations(box, tmp_path, CODE.format(file=str(reads)))
    publish(box, "order", "first", "memory", "last")
    start_host(recorder)
    wait_until(lambda: sent(recorder) == [b"first", b"last"], what="the messages of the other instances")
    code, description = wait_for_suspended(box)
    assert code == "ORCHESTRATION"
    assert "ran out of memory, five times" in description
    attempts = reads.stat().st_size
    assert attempts >= 5
    resume(box.connection, box.orchestration_instances()[0].instance_id)
    wait_until(lambda: reads.stat().st_size > attempts, what="another attempt")
    wait_for_suspended(box)
