"""Orchestrations need more memory than their host process may have. They are suspended, and the others go on."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from postroom.messagebox.maintenance.check import check
from tests.support.box import Box
from tests.support.orchestration_host import start_orchestration_host
from tests.support.orchestrations import apply_orchestrations, publish
from tests.support.waiting import wait_until

#: The memory that a process may use in addition to what it uses when it works on its first instance.
MEMORY = 400_000_000

#: ``kill`` is what the kernel does to a process in a container that uses too much.
CODE = """
import os
import resource
import signal
from pathlib import Path

app.send_port("Stopped", adapters.Null(), host="Default", state="stopped")

def limit_memory() -> None:
    if resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        limit = pages * resource.getpagesize() + {memory}
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))

def build(kind: str) -> object:
    with Path({calls!r}).open("a") as file:
        file.write(kind + " ")
    return [1] * 15_000_000

@app.orchestration(activate=Kind == "order", host="Default")
async def work(order: Message) -> None:
    limit_memory()
    text = order.data.decode()
    if text == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if text == "turn":
        bytearray(10 * {memory})
    if text == "step":
        await orchestrations.step(build, text)
    await orchestrations.send(Message.of(b"done " + order.data), to="Stopped")
"""


@pytest.mark.sample("hosts under load")
def test_an_instance_that_needs_too_much_memory_is_suspended_and_the_others_end(box: Box, tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    apply_orchestrations(box, tmp_path, CODE.format(calls=str(calls), memory=MEMORY))
    with ExitStack() as stack:
        processes = [start_orchestration_host(stack, box.url, tmp_path)]

        def has_ended(*, suspended: int, done: int) -> bool:
            if processes[-1].poll() is not None:
                processes.append(start_orchestration_host(stack, box.url, tmp_path))
            return (len(_list_suspended(box)), box.count("suspended")) == (suspended, done)

        publish(box, "order", "fine", "turn", "step", "fine")
        wait_until(lambda: has_ended(suspended=2, done=2), what="two suspended instances")
        assert len(processes) == 1
        publish(box, "order", "kill", *["fine"] * 5)
        # Two deaths are enough for a test: the last ones, at which it is tried alone.
        wait_until(lambda: box.count("unsuspended orchestrations") > 0, what="it is claimed")
        box.set_process_deaths(3)
        wait_until(lambda: has_ended(suspended=3, done=7), what="three suspended instances, and the end of the others")
        assert len(processes) <= 6
    suspended = _list_suspended(box)
    assert any(text.startswith("ORCHESTRATION: ") and "MemoryError" in text for text in suspended), "the turn"
    assert any(text.startswith("STEP_RESULT: The step build has run") and "MemoryError" in text for text in suspended)
    assert any("died, did not respond, or ran out of memory, five times" in text for text in suspended)
    assert calls.read_text().split() == ["step"], "it has had its effect, and is not repeated"
    assert check(box.connection) == []


def _list_suspended(box: Box) -> list[str]:
    instances = box.orchestration_instances()
    return [f"{one.error_code}: {one.error_description}" for one in instances if one.is_suspended]
