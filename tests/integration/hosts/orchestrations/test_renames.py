"""A renamed orchestration keeps its instances, journals, subscriptions, convoys and bindings."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.errors import DefinitionRefused
from postroom.messagebox.configuration.services import ServiceState
from postroom.messagebox.instances import InstanceQuery, list_instances
from postroom.messagebox.maintenance.check import check
from postroom.operations.deployment.plan import ChangeKind
from postroom.operations.deployment.taken_changes import wait_until_taken
from postroom.operations.orchestrations import states
from postroom.operations.orchestrations.bindings import bind
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.orchestrations import COLLECT, apply_orchestrations, has_ended, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

CONVOY = """
@app.orchestration(activate=Kind == "order", convoy=[Key], host="Default"{settings})
async def {name}(order: Message) -> None:
    texts = [order.data] + [(await orchestrations.receive()).data for _ in range(2)]
    await orchestrations.send(Message.of(b" ".join(texts)), to="Out")
"""
CALLER = """
@app.orchestration(host="Default"{settings})
async def {name}(order: Message) -> None:
    await orchestrations.send(Message.of(b"part"), to="Out")

@app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
async def whole(order: Message) -> None:
    replies = Replies.of(order)
    await orchestrations.start({name}, order)
    while (reply := await replies.receive()).data != b"end":
        await orchestrations.start({name}, order)
"""

SEND = """
@app.orchestration(host="Default"{settings})
async def {name}(order: Message) -> None:
    await orchestrations.send(order, to="Out")
"""


@pytest.mark.parametrize("is_restarted", [False, True])
def test_a_renamed_orchestration_keeps_its_instances_state_and_bindings(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, is_restarted: bool
) -> None:
    """ORC-31: the instance continues from memory, or after a restart of the host from its journal."""
    apply_orchestrations(box, tmp_path, COLLECT)
    host = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"ask"], what="the waiting instance")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="released")
    if is_restarted:
        host.stop()
    bind(box.connection, "collect", "Out", None)
    bind(box.connection, "collect", "Out", "Out")
    states.stop(box.connection, "collect")
    renamed = COLLECT.replace("def collect", "def gather").replace(
        'host="Default")', 'renamed_from="collect", host="Default")'
    )
    planned = apply_orchestrations(box, tmp_path, renamed)
    [step] = (step for step in planned.changes if step.kind is ChangeKind.ORCHESTRATION)
    assert (step.name, step.action) == ("gather", "change")
    assert step.note.startswith("renamed: its instances move with it; stays stopped; Out stays bound to Out")
    details = states.get_orchestration_details(box.connection, "gather")
    assert (details.state, details.instances) == (ServiceState.STOPPED, 1)
    assert [binding.bound_by for binding in details.bindings] == ["operator"]
    assert [one.service for one in list_instances(box.connection, InstanceQuery(port="gather"))] == ["gather"]
    if is_restarted:
        start_host(recorder)
    wait_until_taken(box.connection, ["Default"])
    publish(box, "reply", "1", "2")
    wait_until(lambda: sent(recorder) == [b"1 2", b"ask"], what="the end of the instance")
    states.start(box.connection, "gather")
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"1 2", b"ask", b"ask"], what="an instance under the new name")
    assert apply_orchestrations(box, tmp_path, renamed).changes == ()
    assert check(box.connection) == []


def test_a_renamed_orchestration_keeps_its_convoys(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-20: messages join the instance that was started under the old name."""
    apply_orchestrations(box, tmp_path, CONVOY.format(name="count", settings=""))
    start_host(recorder)
    publish(box, "order", "1")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="the waiting instance")
    apply_orchestrations(box, tmp_path, CONVOY.format(name="add", settings=', renamed_from="count"'))
    wait_until_taken(box.connection, ["Default"])
    publish(box, "order", "2", "3")
    wait_until(lambda: sent(recorder) == [b"1 2 3"] and has_ended(box), what="one instance with all messages")


def test_callers_of_a_renamed_orchestration_continue_from_their_journals(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-31: the journal of a caller has the old name."""
    apply_orchestrations(box, tmp_path, CALLER.format(name="part", settings=""))
    host = start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: sent(recorder) == [b"part"], what="the part")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="the waiting caller")
    host.stop()
    apply_orchestrations(box, tmp_path, CALLER.format(name="piece", settings=', renamed_from="part"'))
    start_host(recorder)
    publish(box, "reply", "again", "end")
    wait_until(lambda: sent(recorder) == [b"part", b"part"] and has_ended(box), what="the end of the caller")


def test_two_orchestrations_swap_their_names_and_wrong_old_names_are_refused(box: Box, tmp_path: Path) -> None:
    one = SEND
    apply_orchestrations(box, tmp_path, one.format(name="a", settings="") + one.format(name="b", settings=""))
    ids = {one.name: one.service_id for one in states.list_orchestrations(box.connection)}
    bind(box.connection, "a", "Out", None)
    bind(box.connection, "b", "Out", "Out")
    swapped = [one.format(name=new, settings=f', renamed_from="{old}"') for new, old in (("a", "b"), ("b", "a"))]
    apply_orchestrations(box, tmp_path, "".join(swapped))
    assert {one.name: one.service_id for one in states.list_orchestrations(box.connection)} == {
        "a": ids["b"],
        "b": ids["a"],
    }
    [binding] = states.get_orchestration_details(box.connection, "b").bindings
    assert binding.target == "direct"
    for wrong, text in (
        (one.format(name="c", settings=', renamed_from="c"'), "renamed_from is its own name"),
        (one.format(name="c", settings=", renamed_from=7"), "renamed_from is 7, but must be the old name"),
    ):
        with pytest.raises(DefinitionRefused, match=text):
            apply_orchestrations(box, tmp_path, wrong + one.format(name="b", settings=""))
