"""Hosts run the code that was applied: changed code, edited files, versions side by side."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.errors import DefinitionRefused
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.operations.deployment.plan import Action, ChangeKind
from postroom.operations.deployment.taken_changes import wait_until_taken
from postroom.operations.orchestrations.states import list_orchestrations
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.changes import resume
from tests.support.orchestrations import COLLECT, ECHO, apply_orchestrations, is_empty, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until


def test_changed_code_that_does_not_fit_suspends_the_instance_with_the_place(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    first = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("waiting orchestrations") == 1)
    first.stop()
    apply_orchestrations(box, tmp_path, COLLECT.replace('(b"ask"), to="Out"', '(b"ask")'), allow_incompatible=True)
    start_host(recorder)
    publish(box, "reply", "1")
    wait_until(lambda: box.count("suspended orchestrations") == 1, what="suspended")
    [instance] = box.orchestration_instances()
    code, description = instance.error_code, instance.error_description or ""
    assert code == "JOURNAL"
    assert "The journal has 'send Out' (app.py:" in description
    apply_orchestrations(box, tmp_path, COLLECT)
    publish(box, "reply", "2")
    resume(box.connection, box.orchestration_instances()[0].instance_id)
    wait_until(lambda: sent(recorder) == [b"1 2", b"ask"], what="the instance continues with the old code")


def test_a_file_that_was_edited_is_not_run_before_it_is_applied(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    first = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"ask"], what="a waiting instance")
    file, edited = tmp_path / "app.py", (tmp_path / "app.py").read_text().replace('b" ".join', 'b"+".join')
    applied = file.read_text()
    file.write_text(edited)
    publish(box, "reply", "1")
    wait_until(lambda: box.count("journal entries") == 2, what="the process that runs goes on")
    first.stop()
    second = start_host(recorder)
    advice = f"Run 'postroom apply {file}'"
    wait_until(lambda: any(advice in problem for problem in second.find_problems()), what="the edit detected")
    [listed] = list_orchestrations(box.connection)
    assert advice in str(listed.problem)
    publish(box, "order", "", key="new")
    publish(box, "reply", "2")
    file.write_text(applied)
    wait_until(lambda: sent(recorder) == [b"1 2", b"ask", b"ask"], what="the end with the applied code")
    wait_until(lambda: second.find_problems() == [], what="no problem")
    assert [one.problem for one in list_orchestrations(box.connection)] == [None]


def test_a_traceback_shows_the_code_that_has_run_although_the_file_was_edited(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, ECHO.replace('b"echo " + order.data', '{}["applied"]'))
    start_host(recorder)
    wait_until_taken(box.connection, ["Default"])
    file = tmp_path / "app.py"
    file.write_text(file.read_text().replace('{}["applied"]', '{}["edited"]'))
    publish(box, "order", "")
    wait_until(lambda: box.count("suspended orchestrations") == 1, what="suspended")
    description = box.read_orchestration_error()
    assert '{}["applied"]' in description


def test_a_waiting_instance_in_memory_continues_with_the_code_that_was_applied_last(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    host = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"ask"], what="a waiting instance")
    apply_orchestrations(box, tmp_path, COLLECT.replace('b" ".join', 'b"+".join'))
    wait_until_taken(box.connection, ["Default"])
    publish(box, "reply", "1", "2")
    wait_until(lambda: sent(recorder) == [b"1+2", b"ask"], what="the end with the changed code")
    assert host.find_problems() == []


def test_versions_are_declared_side_by_side(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    publish(box, "order", "", key="old")
    wait_until(lambda: sent(recorder) == [b"ask"], what="an instance of version 1")
    new = ECHO.replace("def echo", "def changed").replace("activate=", 'name="collect", version=2, activate=')
    refused = "orchestration 'collect' cannot be removed: it still has 1 instance"
    with pytest.raises(DefinitionRefused, match=refused):
        apply_orchestrations(box, tmp_path, new)
    apply_orchestrations(box, tmp_path, COLLECT + new)
    assert [one.version for one in list_instances(box.connection, InstanceQuery(port="collect"))] == [1]
    publish(box, "order", "new", key="new")
    wait_until(lambda: sent(recorder) == [b"ask", b"echo new"], what="an instance of version 2")
    publish(box, "reply", "1", "2", key="old")
    wait_until(lambda: b"1 2" in sent(recorder), what="the end of the old instance")
    wait_until(lambda: is_empty(box), what="no instance")
    [removal] = apply_orchestrations(box, tmp_path, new).select(ChangeKind.ORCHESTRATION, Action.REMOVE)
    assert (removal.name, removal.note) == ("collect", "only version 1")
    assert len(box.orchestration_ids()) == 1
