"""ORC-58: a plan says which orchestrations really change, and whether their waiting instances can continue."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from postroom.application import load
from postroom.errors import DefinitionRefused
from postroom.operations.deployment.apply import plan, remove
from postroom.operations.deployment.backlog import Backlog
from postroom.operations.deployment.plan import Action, ChangeKind, Plan
from postroom.operations.deployment.taken_changes import wait_until_taken
from postroom.operations.orchestrations import replays
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.orchestrations import COLLECT, ECHO, apply_orchestrations, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

#: ``collect`` waits for two replies. A file counts how often its code runs.
COUNTED = """
from pathlib import Path

GREETING = b"ask"

def greet() -> bytes:
    return GREETING
""" + COLLECT.replace(
    "    replies =", '    with Path({file!r}).open("a") as file: file.write("x")\n    replies ='
).replace('b"ask"', "greet()")
UNRELATED = ECHO.replace('Kind == "order"', 'Kind == "echo"')
#: The code does something else before it waits.
OTHER = ('(b"ask"), to="Out"', '(b"ask")')


def list_steps(plan: Plan, *actions: Action) -> list[str]:
    return [step.name for step in plan.select(ChangeKind.ORCHESTRATION, *actions)]


def plan_orchestrations(box: Box, folder: Path, *, allow_incompatible: bool = False) -> Plan:
    return plan(box.connection, load(folder / "app.py"), home=folder, allow_incompatible=allow_incompatible)


def edit(folder: Path, old: str, new: str) -> None:
    file = folder / "app.py"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


def wait_for_instances(box: Box, count: int = 1) -> None:
    wait_until(lambda: box.count("waiting orchestrations") == count, what="waiting instances")


def list_texts(plan: Plan) -> Sequence[str]:
    return [problem.text for problem in plan.problems]


def test_a_plan_says_which_orchestrations_really_change(box: Box, tmp_path: Path) -> None:
    code = COUNTED.format(file=str(tmp_path / "calls"))
    apply_orchestrations(box, tmp_path, code + UNRELATED)
    edit(tmp_path, 'GREETING = b"ask"', 'GREETING = b"hello"')
    changed = plan_orchestrations(box, tmp_path)
    assert list_steps(changed, Action.CHANGE) == ["collect"]
    assert list_steps(changed, Action.KEEP) == ["echo"]
    edit(tmp_path, 'GREETING = b"hello"', 'GREETING = b"ask"  # as before')
    edit(tmp_path, 'b"echo "', 'b"said "')
    assert list_steps(plan_orchestrations(box, tmp_path), Action.CHANGE) == ["echo"]


def test_a_comment_changes_no_orchestration_and_is_applied(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    host = start_host(recorder)
    changed = apply_orchestrations(box, tmp_path, "# A comment.\n" + ECHO)
    assert list_steps(changed, Action.KEEP) == ["echo"]
    wait_until_taken(box.connection, ["Default"])
    publish(box, "order", "a")
    wait_until(lambda: sent(recorder) == [b"echo a"], what="the host runs the file that was applied")
    assert host.find_problems() == []


def test_a_running_instance_of_an_unchanged_orchestration_is_not_replayed(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    calls = tmp_path / "calls"
    code = COUNTED.format(file=str(calls))
    apply_orchestrations(box, tmp_path, code + UNRELATED)
    start_host(recorder)
    publish(box, "order", "")
    wait_for_instances(box)
    apply_orchestrations(box, tmp_path, code + UNRELATED.replace("echo ", "said "))
    wait_until_taken(box.connection, ["Default"])
    publish(box, "reply", "1", "2")
    publish(box, "echo", "a")
    wait_until(lambda: sent(recorder) == [b"1 2", b"ask", b"said a"], what="both continue")
    assert calls.read_text() == "x"


def test_instances_that_do_not_fit_are_listed_and_nothing_is_applied(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    publish(box, "order", "", key="a")
    publish(box, "order", "", key="b")
    wait_for_instances(box, 2)
    before = (tmp_path / "app.py").read_text()
    edit(tmp_path, *OTHER)
    planned = plan_orchestrations(box, tmp_path)
    ids = {one.instance_id for one in box.orchestration_instances()}
    assert {(one.instance_id, one.orchestration, one.version, one.turn) for one in planned.incompatible_instances} == {
        (instance_id, "collect", 1, 1) for instance_id in ids
    }
    [text] = list_texts(planned)
    assert "orchestration 'collect': 2 waiting instances cannot continue with the changed code" in text
    assert all(f"{instance_id}, turn 1: The journal has 'send Out' (app.py:" in text for instance_id in ids)
    with pytest.raises(DefinitionRefused, match="--allow-incompatible"):
        apply_orchestrations(box, tmp_path, COLLECT.replace(*OTHER))
    (tmp_path / "app.py").write_text(before)
    publish(box, "reply", "1", "2", key="a")
    wait_until(lambda: b"1 2" in sent(recorder), what="the instance continues with the old code")
    applied = apply_orchestrations(box, tmp_path, COLLECT.replace(*OTHER), allow_incompatible=True)
    assert len(applied.incompatible_instances) == 1
    publish(box, "reply", "1", "2", key="b")
    wait_until(lambda: box.count("suspended orchestrations") == 1, what="the other one is suspended")
    # Its journal does not fit the deployed code, so another change cannot make it worse.
    edit(tmp_path, 'b" ".join', 'b"+".join')
    assert list_texts(plan_orchestrations(box, tmp_path)) == []


def test_a_change_that_fits_the_journals_is_applied(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    publish(box, "order", "")
    wait_for_instances(box)
    publish(box, "reply", "1")
    wait_until(lambda: box.count("journal entries") == 2, what="the first reply")
    wait_for_instances(box)
    applied = apply_orchestrations(box, tmp_path, COLLECT.replace('b" ".join', 'b"+".join'))
    [step] = applied.select(ChangeKind.ORCHESTRATION, Action.CHANGE)
    assert step.note == "the changed code continues one instance"
    assert (
        "Orchestration 'collect': 1 of 1 journals of waiting instances were replayed. 1 fit the changed code."
        in applied.notes
    )
    wait_until_taken(box.connection, ["Default"])
    publish(box, "reply", "2")
    wait_until(lambda: sent(recorder) == [b"1+2", b"ask"], what="the end")


def test_a_journal_that_cannot_be_replayed_is_reported_and_prevents_nothing(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    first = start_host(recorder)
    publish(box, "order", "")
    wait_for_instances(box)
    first.stop()
    box.damage_journals()
    [instance] = box.orchestration_instances()
    applied = apply_orchestrations(box, tmp_path, COLLECT.replace('b" ".join', 'b"+".join'))
    text = f"Orchestration 'collect': the journal of instance {instance.instance_id} cannot be replayed. KeyError:"
    assert any(note.startswith(text) for note in applied.notes), applied.notes
    assert applied.incompatible_instances == ()


def test_a_replay_that_does_not_end_prevents_nothing(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "_REPLAY_SECONDS", 0.2)
    apply_orchestrations(box, tmp_path, COLLECT)
    first = start_host(recorder)
    publish(box, "order", "")
    wait_for_instances(box)
    first.stop()
    edit(tmp_path, "    replies =", "    while True: pass\n    replies =")
    planned = plan_orchestrations(box, tmp_path)
    assert any("Its replay did not end within 0.2 seconds." in note for note in planned.notes), planned.notes
    assert list_texts(planned) == []


def test_a_sample_is_replayed_if_there_are_very_many(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replays, "MAX_INSTANCES", 2)
    apply_orchestrations(box, tmp_path, COLLECT)
    start_host(recorder)
    for key in ("a", "b", "c"):
        publish(box, "order", "", key=key)
    wait_for_instances(box, 3)
    edit(tmp_path, *OTHER)
    planned = plan_orchestrations(box, tmp_path, allow_incompatible=True)
    note = "2 of 3 journals of waiting instances were replayed, a sample. 0 fit the changed code."
    assert f"Orchestration 'collect': {note}" in planned.notes
    assert list_texts(planned) == []
    assert any("2 waiting instances cannot continue" in note for note in planned.notes)


def test_instances_that_a_removed_orchestration_has_left_are_replayed_when_it_is_declared_again(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COLLECT)
    first = start_host(recorder)
    publish(box, "order", "")
    wait_for_instances(box)
    first.stop()
    remove(box.connection, "tests", home=tmp_path, backlog=Backlog.KEEP)
    edit(tmp_path, *OTHER)
    [text] = list_texts(plan_orchestrations(box, tmp_path))
    assert "one waiting instance cannot continue with the changed code" in text
    apply_orchestrations(box, tmp_path, COLLECT)
