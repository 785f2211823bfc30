"""Orchestrations that cannot go on are suspended, with a description of what to change. Others are not affected."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from postroom import Application, adapters
from postroom.application import ApplicationDefinition
from postroom.errors import DefinitionRefused, Unavailable
from postroom.hosts import run_host
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.operations.deployment.apply import apply
from postroom.operations.deployment.taken_changes import wait_until_taken
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support.box import Box
from tests.support.changes import resume
from tests.support.orchestrations import apply_orchestrations, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import PATIENCE, wait_until

IMPATIENT = replace(SETTINGS, turn_limit=timedelta(seconds=0.3))

#: Opening a named pipe blocks outside of Python, until another process opens its other end.
BLOCKED = """
@app.orchestration(activate=Kind == "order", host="Default")
async def block(order: Message) -> None:
    if order.data:
        open(order.data).close()
    await orchestrations.send(Message.of(b"fine"), to="Out")
"""


def wait_for_suspended(box: Box) -> tuple[str, str]:
    """Wait until an instance is suspended. Return its error code and description."""
    wait_until(lambda: box.count("suspended orchestrations") == 1, what="a suspended instance")
    [instance] = [one for one in box.orchestration_instances() if one.is_suspended]
    code, description = instance.error_code or "", instance.error_description or ""
    return code, description


def test_a_replay_that_never_waits_is_suspended(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    code = """
        @app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
        async def wait(order: Message) -> None:
            replies = Replies.of(order)
            while order.data == b"endless":
                pass
            await replies.receive()
            await orchestrations.send(Message.of(b"done"), to="Out")
        """
    apply_orchestrations(box, tmp_path, code.replace('b"endless"', 'b"never"'))
    first = start_host(recorder)
    publish(box, "order", "endless")
    wait_until(lambda: box.count("waiting orchestrations") == 1)
    first.stop()
    apply_orchestrations(box, tmp_path, code)
    second = start_host(recorder, settings=IMPATIENT)
    publish(box, "reply", "")
    assert "neither waited nor ended within 0.3 seconds" in wait_for_suspended(box)[1]
    wait_until(lambda: second.find_problems() == [], what="no thread is stuck")
    apply_orchestrations(box, tmp_path, code.replace('b"endless"', 'b"never"'))
    wait_until_taken(box.connection, ["Default"])
    resume(box.connection, box.orchestration_instances()[0].instance_id)
    wait_until(lambda: sent(recorder) == [b"done"], what="the instance goes on with corrected code")


def test_a_dropped_coroutine_that_never_ends_is_interrupted(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", host="Default")
        async def end(order: Message) -> None:
            await orchestrations.send(Message.of(order.data), to="Out")
            try:
                await orchestrations.terminate("done")
            finally:
                while order.data == b"endless":
                    pass
        """,
    )
    box.set_dequeuing(ServiceClass.ORCHESTRATIONS, threads=1)
    host = start_host(recorder, settings=IMPATIENT)
    publish(box, "order", "endless")
    wait_until(lambda: sent(recorder) == [b"endless"], what="the end of the first instance")
    publish(box, "order", "next")
    wait_until(lambda: sent(recorder) == [b"endless", b"next"], what="the thread works again")
    wait_until(lambda: box.count("orchestration instances") == 0, what="the end of both")
    assert host.find_problems() == []


def test_the_process_ends_if_a_thread_is_blocked_outside_of_python(box: Box, tmp_path: Path) -> None:
    apply_orchestrations(box, tmp_path, BLOCKED)
    recorder = RecordingAdapter()
    os.mkfifo(pipe := tmp_path / "pipe")
    publish(box, "order", str(pipe))
    with ThreadPoolExecutor() as pool:
        process = pool.submit(
            run_host,
            box.url,
            "Default",
            tmp_path,
            as_role=True,
            build_adapter=recorder.build,
            settings=IMPATIENT,
            stop=threading.Event(),
        )
        with pytest.raises(Unavailable, match="a thread of an orchestration cannot be interrupted"):
            process.result()
    assert "in block" in wait_for_suspended(box)[1]
    assert box.count("host instances") == 0
    pipe.open("w").close()  # ends the thread


def test_a_process_whose_interpreter_lock_is_not_released_ends_and_its_instance_is_suspended(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """No thread of the process runs, so nothing in it can suspend the instance: its claim is taken over."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        import ctypes

        @app.orchestration(activate=Kind == "order", host="Default")
        async def block(order: Message) -> None:
            if order.data:
                ctypes.PyDLL(None).sleep(3600)
            await orchestrations.send(Message.of(b"fine"), to="Out")
        """,
    )
    publish(box, "order", "block")
    code, log = _run_until_blocked(box, tmp_path)
    assert code != 0
    assert b"in block" in log
    # Later than the time after a start of the server in which nobody is declared dead.
    cleanup = "SELECT dead_processes_cleanup('0 seconds', clock_timestamp() + interval '1 hour')"
    wait_until(lambda: box.one(cleanup) == 1, what="the claim is released")
    start_host(recorder)
    error_code, description = wait_for_suspended(box)
    assert error_code == "ORCHESTRATION"
    assert "died, did not respond, or ran out of memory, five times" in description
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"fine"], what="the other instance")


def _run_until_blocked(box: Box, home: Path) -> tuple[int, bytes]:
    """Run host processes until one has claimed the instance and has ended. Return its exit code and its log. On a busy
    machine a process may get no time to run for two seconds, and ends before the claim."""
    command = [sys.executable, "-m", "tests.support.orchestration_host", box.url, "Default", str(home), "2"]
    while True:
        with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
            wait_until(lambda: box.count("claimed orchestrations") == 1 or process.poll() is not None, what="the claim")
            box.set_process_deaths(4)
            _, log = process.communicate(timeout=PATIENCE)
        if box.count("claimed orchestrations") == 1:
            return process.returncode, log


def test_a_thread_that_is_blocked_for_a_while_does_not_stop_others(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, BLOCKED)
    os.mkfifo(pipe := tmp_path / "pipe")
    host = start_host(recorder, settings=IMPATIENT)
    publish(box, "order", str(pipe))
    wait_until(lambda: "cannot be interrupted" in str(host.find_problems()), what="a blocked thread")
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"fine"], what="the other instance")
    pipe.open("w").close()
    wait_until(lambda: host.find_problems() == [], what="the end of the thread")
    wait_for_suspended(box)
    assert sent(recorder) == [b"fine"]


def test_a_state_that_cannot_be_stored_suspends_the_instance(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", host="Default")
        async def carry(order: Message) -> None:
            await orchestrations.continue_with(object())
        """,
    )
    start_host(recorder)
    publish(box, "order", "")
    code, description = wait_for_suspended(box)
    assert code == "ORCHESTRATION"
    assert "in carry" in description
    assert "The journal cannot store" in description
    assert "Return None, bool, int" in description


def test_code_that_depends_on_the_wall_clock_is_suspended_when_it_is_replayed(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """A file stands for the clock: it changes between the first run and the replay."""
    apply_orchestrations(
        box,
        tmp_path,
        f"""
        from pathlib import Path

        @app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
        async def greet(order: Message) -> None:
            replies = Replies.of(order)
            if Path({str(tmp_path / "evening")!r}).exists():
                await orchestrations.send(Message.of(b"good evening"), to="Out")
            await replies.receive()
        """,
    )
    first = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("waiting orchestrations") == 1)
    first.stop()
    (tmp_path / "evening").touch()
    start_host(recorder)
    publish(box, "reply", "")
    code, description = wait_for_suspended(box)
    assert code == "JOURNAL"
    assert "The code does 'send Out' (app.py:" in description
    assert "orchestrations.now()" in description
    assert sent(recorder) == []


def test_a_send_to_an_unknown_port_suspends_the_instance_until_there_is_one(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-55: the name of the port is known when the message is sent."""
    code = """
        @app.orchestration(activate=Kind == "order", host="Default")
        async def ask(order: Message) -> None:
            await orchestrations.send(Message.of(b"hello"), to=order.data.decode())
        """
    apply_orchestrations(box, tmp_path, code)
    start_host(recorder)
    publish(box, "order", "Later")
    error_code, description = wait_for_suspended(box)
    assert error_code == "NOT_FOUND"
    assert "There is no send port or send port group 'Later'." in description
    assert "There are: Out" in description
    apply_orchestrations(
        box,
        tmp_path,
        f"""
        app.send_port("Later", adapters.Null(), host="Default")
        {code}""",
    )
    resume(box.connection, box.orchestration_instances()[0].instance_id)
    wait_until(lambda: sent(recorder) == [b"hello"], what="the message sent")


def test_a_constant_name_of_an_unknown_port_is_refused(box: Box, tmp_path: Path) -> None:
    code = """
        app.send_port("Pricing", adapters.Http("http://127.0.0.1:9/"), host="Default", two_way=True)
        LATER = "Later"

        @app.orchestration(activate=Kind == "order", host="Default")
        async def ask(order: Message) -> None:
            async def undo() -> None:
                await orchestrations.send(order, to="Oute")

            async with orchestrations.scope() as scope:
                scope.compensate_with(orchestrations.send, order, to="Nowhere")
                await orchestrations.send(order, to=LATER)
                await orchestrations.send(order, to="Out")
                await orchestrations.request(order, to="Out")
                await orchestrations.deliver(order, to="Pricing")
                await orchestrations.request(order, to="Pricing")
            await undo()
        """
    with pytest.raises(DefinitionRefused) as raised:
        apply_orchestrations(box, tmp_path, code)
    texts = [problem.text.removeprefix("orchestration 'ask': ") for problem in raised.value.problems]
    assert [text.split(". ")[0] for text in texts] == [
        "there is no send port or send port group 'Later'",
        "there is no send port or send port group 'Nowhere'",
        "the send port 'Out' is one-way, so that a request gets no response",
        "there is no send port or send port group 'Oute'",
        "the send port 'Pricing' is two-way, so that nobody can wait for its delivery",
    ]
    assert "Declare it, or correct the name. Did you mean Out?" in texts[3]
    assert len(box.orchestration_ids()) == 0


def test_a_wrong_call_is_refused_for_port_objects_and_in_functions_that_are_called(box: Box, tmp_path: Path) -> None:
    code = """
        priced = app.send_port("Pricing", adapters.Http("http://127.0.0.1:9/"), host="Default", two_way=True)
        audit = app.send_port("Audit", adapters.Null(), host="Default")
        everyone = app.send_port_group("Everyone", ["Out"])

        async def store(order: Message) -> None:
            await orchestrations.request(order, to="Out")

        @app.orchestration(activate=Kind == "order", host="Default")
        async def ask(order: Message) -> None:
            await orchestrations.request(order, to=audit)
            await orchestrations.deliver(order, to=priced)
            await orchestrations.deliver(order, to=everyone)
            await orchestrations.deliver(order, to=audit)
            await orchestrations.request(order, to=priced)
            await store(order)
        """
    with pytest.raises(DefinitionRefused) as raised:
        apply_orchestrations(box, tmp_path, code)
    texts = [problem.text.removeprefix("orchestration 'ask': ") for problem in raised.value.problems]
    assert texts == [
        "the send port 'Audit' is one-way, so that a request gets no response. Use send or deliver.",
        "the send port 'Out' is one-way, so that a request gets no response. Use send or deliver.",
        "the send port 'Pricing' is two-way, so that nobody can wait for its delivery. Use request.",
    ]


def test_a_port_that_orchestrations_of_other_applications_request_stays_two_way(box: Box, tmp_path: Path) -> None:
    def declare(two_way: bool) -> ApplicationDefinition:
        prices = Application("prices")
        prices.host("Default")
        http = adapters.Http("http://127.0.0.1:9/")
        prices.send_port("Pricing", http, host="Default", two_way=two_way)
        return prices.definition()

    code = """
        @app.orchestration(activate=Kind == "order", host="Default")
        async def ask(order: Message) -> None:
            await orchestrations.request(order, to="Pricing")
        """
    text = "the send port 'Pricing' is one-way, so that a request gets no response. Use send or deliver."
    apply(box.connection, declare(two_way=False), home=tmp_path)
    with pytest.raises(DefinitionRefused, match=f"orchestration 'ask': {text}"):
        apply_orchestrations(box, tmp_path, code)
    apply(box.connection, declare(two_way=True), home=tmp_path)
    apply_orchestrations(box, tmp_path, code)
    with pytest.raises(DefinitionRefused, match=f"orchestration 'ask' of the application 'tests': {text}"):
        apply(box.connection, declare(two_way=False), home=tmp_path)


def test_a_request_through_a_one_way_port_suspends_the_instance_until_the_port_is_two_way(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """The name of the port is known when the request is sent."""
    code = """
        app.send_port("Pricing", adapters.Http("http://127.0.0.1:9/"), host="Default", two_way=IS_TWO_WAY)

        @app.orchestration(activate=Kind == "order", host="Default")
        async def ask(order: Message) -> None:
            await orchestrations.request(order, to=order.data.decode())
        """
    apply_orchestrations(box, tmp_path, code.replace("IS_TWO_WAY", "False"))
    start_host(recorder)
    publish(box, "order", "Pricing")
    error_code, description = wait_for_suspended(box)
    assert error_code == "STATE"
    assert "The send port 'Pricing' is one-way" in description
    apply_orchestrations(box, tmp_path, code.replace("IS_TWO_WAY", "True"))
    resume(box.connection, box.orchestration_instances()[0].instance_id)
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="the instance that waits for the response")


def test_a_definition_that_cannot_bind_is_refused(box: Box, tmp_path: Path) -> None:
    with pytest.raises(DefinitionRefused, match="Nowhere"):
        apply_orchestrations(
            box,
            tmp_path,
            """
            @app.orchestration(activate=Kind == "order", host="Nowhere")
            async def ask(order: Message) -> None:
                pass
            """,
        )
    assert len(box.orchestration_ids()) == 0


def test_an_instance_that_forgets_to_await_a_send_is_suspended(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    code = """
        @app.orchestration(activate=Kind == "order", host="Default")
        async def forget(order: Message) -> None:
            send = [orchestrations.send][0]  # a name that plan does not know
            send(Message.of(b"forgotten"), to="Out")
        """
    apply_orchestrations(box, tmp_path, code)
    start_host(recorder)
    publish(box, "order", "")
    assert "send() was called in app.py:18 and never awaited, so it did nothing" in wait_for_suspended(box)[1]
    apply_orchestrations(box, tmp_path, code.replace("send(M", "await send(M"))
    wait_until_taken(box.connection, ["Default"])
    resume(box.connection, box.orchestration_instances()[0].instance_id)
    wait_until(lambda: sent(recorder) == [b"forgotten"], what="the instance goes on with corrected code")
