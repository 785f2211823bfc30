"""Convoys on hosts: messages with the same values join one instance (ORC-20 … 28)."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom.errors import DefinitionRefused, StateError
from postroom.messagebox.maintenance.check import check
from postroom.operations.orchestrations import states as orchestration_states
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.changes import resume
from tests.support.orchestrations import COLLECT, apply_orchestrations, is_empty, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until


def test_a_convoy_collects_its_messages_and_leaves_zombies(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-21, 26: the messages were published while no host ran. Each key is one instance, in order. The message that
    its instance has not received is suspended, and cannot be resumed."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", convoy=[Key], host="Default")
        async def collect(first: Message) -> None:
            texts = [first.data]
            while len(texts) < 3:
                texts.append((await orchestrations.receive()).data)
            await orchestrations.send(Message.of(b"".join(texts)), to="Out")
        """,
    )
    publish(box, "order", "1", "2", key="K")
    publish(box, "order", "a", "b", "c", key="L")
    publish(box, "order", "3", "4", key="K")
    start_host(recorder)
    wait_until(lambda: sent(recorder) == [b"123", b"abc"], what="both convoys")
    wait_until(lambda: box.count("orchestration instances") == 0, what="the end of the instances")
    assert box.suspended() == [("0xC0C01B4C", False)]
    with pytest.raises(StateError, match="cannot be resumed"):
        resume(box.connection, box.suspended_rows()[0].instance_id)
    assert check(box.connection) == []
    publish(box, "order", "x", "y", "z", key="K")
    wait_until(lambda: sent(recorder) == [b"123", b"abc", b"xyz"], what="a new instance with the same key")


def test_an_instance_of_a_stopped_orchestration_gets_its_messages(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORS-03: also those of its convoy."""
    apply_orchestrations(box, tmp_path, COUNT)
    start_host(recorder)
    publish(box, "order", "1", key="K")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="a waiting instance")
    orchestration_states.stop(box.connection, "count")
    publish(box, "order", "a", key="L")
    publish(box, "order", *"234", key="K")
    wait_until(lambda: sent(recorder) == [b"1234"], what="the end of the instance")
    publish(box, "order", *"bcd", key="L")
    assert box.suspended() == [("PORT_STOPPED", True)] * 4
    orchestration_states.start(box.connection, "count")
    wait_until(lambda: sent(recorder) == [b"1234", b"abcd"], what="the other instance")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


def test_messages_after_a_timeout_or_another_branch_and_duplicates_are_zombies(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-27."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        Offers, Votes, Stops = [Correlation(Key, filter=Kind == kind) for kind in ("offer", "vote", "stop")]

        @app.orchestration(activate=Kind == "order", correlations=[Replies, Offers, Votes, Stops], host="Default")
        async def choose(order: Message) -> None:
            replies, offers, votes, stops = (one.of(order) for one in (Replies, Offers, Votes, Stops))
            with suppress(TimeoutError):
                async with asyncio.timeout(0):
                    await offers.receive()
            await orchestrations.listen(replies.receive(), votes.receive())
            await orchestrations.send(Message.of(b"chosen"), to="Out")
            await stops.receive()
        """,
    )
    start_host(recorder)
    publish(box, "order", "")
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="the instance waits")
    publish(box, "reply", "")
    wait_until(lambda: sent(recorder) == [b"chosen"], what="the reply received")
    for kind in ("offer", "vote", "reply", "stop"):
        publish(box, kind, "")
    wait_until(lambda: box.count("orchestration instances") == 0, what="the end of the instance")
    assert box.suspended() == [("0xC0C01B4C", False)] * 3
    assert check(box.connection) == []


COUNT = """
@app.orchestration(activate=(Kind == "order") | (Kind == "payment"), convoy=[Key], ordered=True, host="Default")
async def count(first: Message) -> None:
    texts = [first.data, *[(await orchestrations.receive()).data for _ in range(3)]]
    await orchestrations.send(Message.of(b"".join(texts)), to="Out")
"""


def test_messages_of_several_kinds_join_one_instance_whichever_comes_first(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """A parallel convoy (ORC-23)."""
    apply_orchestrations(box, tmp_path, COUNT)
    start_host(recorder)
    publish(box, "payment", "1", key="a")
    publish(box, "order", "2", key="b")
    publish(box, "order", "3", "4", key="a")
    publish(box, "payment", "5", "6", key="b")
    publish(box, "order", "7", key="b")
    publish(box, "payment", "8", key="a")
    wait_until(lambda: sent(recorder) == [b"1348", b"2567"], what="both instances")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


def test_a_convoy_keeps_its_instance_when_other_code_or_a_new_version_is_applied(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    apply_orchestrations(box, tmp_path, COUNT)
    publish(box, "order", "1")
    apply_orchestrations(box, tmp_path, COUNT + "# another comment")
    publish(box, "order", "2")
    newer = COUNT.replace("def count", "def count_again").replace("activate=", 'name="count", version=2, activate=')
    apply_orchestrations(box, tmp_path, COUNT + newer.replace('b"".join', 'b"+".join'))
    publish(box, "order", "3")
    start_host(recorder)
    publish(box, "order", "4")
    wait_until(lambda: sent(recorder) == [b"1234"], what="the instance of the old version")
    publish(box, "order", "1", "2", "3", "4")
    wait_until(lambda: sent(recorder) == [b"1+2+3+4", b"1234"], what="an instance of the new version")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


def test_a_convoy_with_instances_cannot_get_other_properties(box: Box, tmp_path: Path) -> None:
    apply_orchestrations(box, tmp_path, COUNT)
    publish(box, "order", "1")
    with pytest.raises(DefinitionRefused, match="which would get no more messages"):
        apply_orchestrations(box, tmp_path, COUNT.replace("[Key]", "[Kind]"))
    newer = COUNT.replace("def count", "def other").replace("activate=", 'name="count", version=2, activate=')
    plan = apply_orchestrations(box, tmp_path, COUNT + newer.replace("[Key]", "[Kind]"))
    [note] = [step.note for step in plan.steps if step.name == "count version 2"]
    assert "one instance of version 1 would get no more messages of the convoy" in note


def test_the_subscriptions_of_an_ordered_orchestration_are_ordered(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-28. An activation that starts an instance for each message needs no order."""
    apply_orchestrations(box, tmp_path, COUNT + COLLECT.replace("activate=", "ordered=True, activate="))
    start_host(recorder)
    publish(box, "order", "1")
    wait_until(lambda: sent(recorder) == [b"ask"], what="a waiting instance")
    found = box.subscriptions_of_orchestrations()
    rows = sorted((one.service_name, one.instance_id is not None, one.ordered) for one in found)
    assert rows == [("collect", False, False), ("collect", True, True), ("count", False, True)]


def test_messages_that_join_an_instance_have_a_better_priority_than_activations(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """DEQ-12. The priority of a declaration is that of its activation."""
    apply_orchestrations(box, tmp_path, COLLECT + COUNT.replace("activate=", "priority=3, activate="))
    start_host(recorder)
    publish(box, "order", "1")
    wait_until(lambda: sent(recorder) == [b"ask"], what="a waiting instance")
    found = box.subscriptions_of_orchestrations()
    rows = sorted((one.service_name, one.instance_id is not None, one.priority) for one in found)
    assert rows == [("collect", False, 7), ("collect", True, 5), ("count", False, 3)]


def test_a_long_convoy_continues_with_fresh_journals(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """Another host instance continues it in the middle, with what the first one has carried over."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", convoy=[Key], correlations=[Replies], host="Default")
        async def add_up(first: Message) -> None:
            total = orchestrations.carried_state() or 0
            replies = Replies.of(first)
            for _ in range(10):
                total += int((await orchestrations.receive()).data)
            if total < 30:
                await orchestrations.continue_with(total)
            await orchestrations.send(Message.of(b"%d" % total), to="Out")
            await replies.receive()
        """,
    )
    first = start_host(recorder)
    publish(box, "order", *("1" for _ in range(13)))
    wait_until(
        lambda: [(one.journals, one.carried) for one in box.orchestration_instances()] == [(1, 10)],
        what="the second journal",
    )
    wait_until(lambda: box.count("received orchestration messages") == 3, what="12 received")
    assert box.count("instance subscriptions") == 1
    first.stop()
    start_host(recorder)
    publish(box, "order", *("1" for _ in range(18)))
    wait_until(lambda: sent(recorder) == [b"30"], what="the total of all messages")
    publish(box, "reply", "")
    wait_until(lambda: is_empty(box), what="the end of the instance")
    assert check(box.connection) == []
