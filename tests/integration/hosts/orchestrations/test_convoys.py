"""Convoys on hosts: messages with the same values join one instance."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest

from postroom.errors import DefinitionRefused, StateError
from postroom.message import Message
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.maintenance.check import check
from postroom.operations.instances.changes import change_all
from postroom.operations.instances.queries import InstanceQuery
from postroom.operations.orchestrations import states as orchestration_states
from postroom.operations.orchestrations.story import read_story
from tests.integration.hosts.conftest import StartHost
from tests.support.box import Box
from tests.support.changes import reroute, resume
from tests.support.orchestrations import COLLECT, Key, Kind, apply_orchestrations, is_empty, publish, sent
from tests.support.publishers import is_waiting_for_lock
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import PATIENCE, wait_until

THREE = """
@app.orchestration(activate=Kind == "order", convoy=[Key], host="Default")
async def collect(first: Message) -> None:
    texts = [first.data]
    while len(texts) < 3:
        texts.append((await orchestrations.receive()).data)
    await orchestrations.send(Message.of(b"".join(texts)), to="Out")
"""


def test_messages_that_an_instance_has_not_received_activate_the_next_one(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-20, 25, 26: the messages were published while no host ran. Each key is one instance after the other, in
    order."""
    apply_orchestrations(box, tmp_path, THREE)
    publish(box, "order", "1", "2", key="K")
    publish(box, "order", "a", "b", "c", key="L")
    publish(box, "order", *"3456789x", key="K")
    start_host(recorder)
    wait_until(lambda: sent(recorder) == [b"123", b"456", b"789", b"abc"], what="four instances")
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="the fifth instance, with one message")
    assert check(box.connection) == []
    publish(box, "order", "y", "z", key="K")
    wait_until(lambda: sent(recorder)[-1] == b"xyz", what="the fifth instance")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


def test_messages_of_a_stopped_orchestration_wait_for_its_start_with_the_next_instance(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORS-03: the instance that runs receives its messages, but no new one is activated."""
    apply_orchestrations(box, tmp_path, THREE)
    publish(box, "order", "1", "2", key="K")
    start_host(recorder)
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="the instance waits")
    orchestration_states.stop(box.connection, "collect")
    box.agent(warm=False).publish([Message.of(text.encode(), promoted={Kind: "order", Key: "K"}) for text in "3456"])
    wait_until(lambda: sent(recorder) == [b"123"], what="the instance that runs")
    wait_until(lambda: box.suspended() == [("PORT_STOPPED", True)] * 3, what="the others suspended")
    assert len({row.instance_id for row in box.suspended_rows()}) == 1
    publish(box, "order", "7", key="K")
    assert check(box.connection) == []
    orchestration_states.start(box.connection, "collect")
    wait_until(lambda: sent(recorder) == [b"123", b"456"], what="the next instance")
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="the third instance, with one message")
    assert check(box.connection) == []


def test_messages_of_a_convoy_activate_the_newest_version(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """The messages were routed by the subscription of the first version, and it ends after the second was applied."""
    apply_orchestrations(box, tmp_path, THREE)
    publish(box, "order", *"12345", key="K")
    newer = THREE.replace("def collect", "def again").replace("activate=", 'name="collect", version=2, activate=')
    apply_orchestrations(box, tmp_path, THREE + newer.replace('b"".join', 'b"+".join'))
    publish(box, "order", "6", key="K")
    start_host(recorder)
    wait_until(lambda: sent(recorder) == [b"123", b"4+5+6"], what="an instance of each version")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


UNENLISTED = ["unenlisted", "another filter"]


@pytest.mark.parametrize("change", UNENLISTED)
def test_messages_of_a_convoy_that_no_activation_matches_can_be_routed_again(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, change: str
) -> None:
    """ORC-26, INS-13: they cannot be resumed. Published again, they activate an instance, if they match its filter."""
    apply_orchestrations(box, tmp_path, THREE)
    publish(box, "order", *"1234", key="K")
    if change == "unenlisted":
        orchestration_states.stop(box.connection, "collect")
        orchestration_states.unenlist(box.connection, "collect")
    else:
        apply_orchestrations(
            box, tmp_path, THREE.replace("activate=", "activate=Key.exists() & (").replace(", convoy", "), convoy")
        )
    start_host(recorder)
    wait_until(lambda: sent(recorder) == [b"123"], what="the first instance")
    wait_until(lambda: box.suspended() == [("0xC0C01B4C", False)], what="the message that it has not received")
    [zombie] = box.suspended_rows()
    with pytest.raises(StateError, match="ended without receiving the message") as error:
        resume(box.connection, zombie.instance_id)
    assert f"postroom instance reroute {zombie.instance_id}" in error.value.hint
    assert check(box.connection) == []
    if change == "unenlisted":
        reroute(box.connection, zombie.instance_id)
        wait_until(lambda: box.suspended() == [("ROUTING", True)], what="the message without subscriber")
        orchestration_states.enlist(box.connection, "collect")
        orchestration_states.start(box.connection, "collect")
        [zombie] = box.suspended_rows()
        resume(box.connection, zombie.instance_id)
    else:
        assert change_all(box.connection, "reroute", InstanceQuery(port="collect")).changed == 1
    publish(box, "order", "5", key="K")
    wait_until(lambda: box.count("received orchestration messages") == 2, what="the next instance")
    publish(box, "order", "6", key="K")
    wait_until(lambda: len(sent(recorder)) == 2, what="the next instance")
    assert sorted(sent(recorder)[-1]) == sorted(b"456")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


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


SHIP = """
IsOrder, IsPayment = Kind == "order", Kind == "payment"

@app.orchestration(activate=[IsOrder, IsPayment], convoy=[Key], host="Default")
async def ship() -> None:
    order, payment = await asyncio.gather(orchestrations.receive(IsOrder), orchestrations.receive(IsPayment))
    await orchestrations.send(Message.of(order.data + payment.data), to="Out")
"""


def test_messages_of_a_parallel_convoy_that_arrive_at_the_same_time_are_one_instance(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-23: two programs publish the messages of each key, and two host instances run."""
    apply_orchestrations(box, tmp_path, SHIP)
    start_host(recorder)
    start_host(recorder)
    keys = [f"{number:02}" for number in range(20)]
    together = Barrier(2, timeout=PATIENCE)

    def publish_all(kind: str) -> None:
        with connect(box.url) as connection:
            agent = box.agent(connection=connection)
            for key in keys:
                together.wait()
                text = f"{kind} {key} "
                agent.publish([Message.of(text.encode(), promoted={Kind: kind, Key: key})])

    with ThreadPoolExecutor() as pool:
        for publishing in [pool.submit(publish_all, kind) for kind in ("order", "payment")]:
            publishing.result()
    expected = [f"order {key} payment {key} ".encode() for key in keys]
    wait_until(lambda: sent(recorder) == expected, what="one instance for each key")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


@pytest.mark.parametrize("kind", ["order", "payment"])
def test_the_story_says_which_receive_has_activated_an_instance(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, kind: str
) -> None:
    """ORC-50."""
    apply_orchestrations(box, tmp_path, SHIP)
    first = start_host(recorder)
    publish(box, kind, "1")
    publish(box, kind, "2")
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="the instance waits")
    story = read_story(box.connection, box.orchestration_instances()[0].instance_id)
    assert story is not None
    assert story.story is not None
    assert story.story[0].what == f"activated by a message that matches Tests.Kind == '{kind}'"
    first.stop()
    start_host(recorder)  # repeats the journal
    other = {"order": "payment", "payment": "order"}[kind]
    publish(box, other, "3")
    wait_until(lambda: sent(recorder) == [b"13" if kind == "order" else b"31"], what="both messages")
    wait_until(lambda: box.count("waiting orchestrations") == 1, what="the next instance waits")
    publish(box, other, "4")
    wait_until(lambda: len(sent(recorder)) == 2, what="both messages of the next instance")
    wait_until(lambda: is_empty(box), what="the end of the instances")
    assert check(box.connection) == []


def test_a_convoy_keeps_its_instance_when_other_code_or_a_new_version_is_applied(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-24: versions share a convoy."""
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
    """ORC-24."""
    apply_orchestrations(box, tmp_path, COUNT)
    publish(box, "order", "1")
    with pytest.raises(DefinitionRefused, match="which would get no more messages"):
        apply_orchestrations(box, tmp_path, COUNT.replace("[Key]", "[Kind]"))
    newer = COUNT.replace("def count", "def other").replace("activate=", 'name="count", version=2, activate=')
    plan = apply_orchestrations(box, tmp_path, COUNT + newer.replace("[Key]", "[Kind]"))
    [note] = [step.note for step in plan.steps if step.name == "count version 2"]
    assert "one instance of version 1 would get no more messages of the convoy" in note


def test_an_ordered_convoy_receives_the_messages_of_several_publishers_in_order(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """ORC-28: a message whose transaction commits later than that of the next number would be overtaken. The next
    publisher waits for the commit."""
    apply_orchestrations(box, tmp_path, COUNT)
    start_host(recorder)
    publish(box, "order", "1")
    wait_until(lambda: box.count("unclaimed orchestrations") == 1, what="a waiting instance")
    with ThreadPoolExecutor() as pool, connect(box.url) as first, connect(box.url) as second:

        def publish_with(connection: Connection, body: bytes) -> None:
            message = Message.of(body, promoted={Kind: "order", Key: "k"})
            box.agent(warm=False, connection=connection).publish([message])

        def is_overtaken() -> bool:
            return published.done() and box.count("queued") == 0

        with first.transaction():
            publish_with(first, b"2")
            published = pool.submit(publish_with, second, b"3")
            wait_until(lambda: is_waiting_for_lock(box, second) or is_overtaken(), what="the second publisher")
        published.result(PATIENCE)
    publish(box, "order", "4")
    assert wait_until(lambda: sent(recorder), what="the end of the instance") == [b"1234"]


def test_the_subscriptions_of_an_ordered_orchestration_are_ordered(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
    """An activation that starts an instance for each message needs no order."""
    apply_orchestrations(box, tmp_path, COUNT + COLLECT.replace("activate=", "ordered=True, activate="))
    start_host(recorder)
    publish(box, "order", "1")
    wait_until(lambda: sent(recorder) == [b"ask"], what="a waiting instance")
    found = box.subscriptions_of_orchestrations()
    rows = sorted((one.service_name, one.instance_id is not None, one.ordered) for one in found)
    assert rows == [("collect", False, False), ("collect", True, True), ("count", False, True)]


def test_the_priority_of_a_declaration_is_that_of_its_activation(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter
) -> None:
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
