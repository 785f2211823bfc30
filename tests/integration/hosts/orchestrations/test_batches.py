"""A thread of a host drives several instances, and stores them in one transaction. Each has an outcome of its own."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from postroom.errors import MessageBoxUnavailable
from postroom.hosts.orchestrations import worker
from postroom.hosts.orchestrations.instance import ActiveInstance, WorkerSession
from postroom.hosts.orchestrations.persistence import Outcomes, persist_together
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.maintenance.check import check
from postroom.messagebox.orchestration_instances import MESSAGES_AT_A_TIME
from postroom.messagebox.queues import ClaimedMessage
from tests.integration.hosts.conftest import SETTINGS, StartHost
from tests.support.box import Box
from tests.support.changes import resume
from tests.support.orchestrations import apply_orchestrations, publish, sent
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

ECHO = """
    from postroom.errors import RoutingFailure

    @app.orchestration(activate=Kind == "order", host="Default")
    async def echo(order: Message) -> None:
        if order.data == b"unroutable":
            try:
                await orchestrations.send(Message.of(b"nobody", promoted={Kind: "unknown"}))
            except RoutingFailure:
                await orchestrations.send(Message.of(b"nobody subscribes"), to="Out")
            return
        if order.data == b"port":
            await orchestrations.send(Message.of(b""), to=order.data.decode())
        if order.data == b"deliver":
            await orchestrations.deliver(Message.of(b"delivered"), to="Out")
        if order.data == b"value":
            await orchestrations.send(Message.of(b"", promoted={Property("Tests.Key", int): 1}), to="Out")
        if order.data == b"error":
            raise ValueError("a wrong order")
        await orchestrations.send(Message.of(b"echo " + order.data), to="Out")
    """


Hook = Callable[[Sequence[ActiveInstance]], None]


def do_nothing(instances: Sequence[ActiveInstance]) -> None:
    pass


class Persistence:
    """The transactions of the workers. ``sizes`` has the number of instances in each."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        #: Called with the instances of the next transaction, before and after it, once.
        self.before: Hook = do_nothing
        self.after: Hook = do_nothing

    def persist(self, session: WorkerSession, instances: Sequence[ActiveInstance]) -> Outcomes:
        self.sizes.append(len(instances))
        before, after = self.before, self.after
        self.before = self.after = do_nothing
        before(instances)
        outcomes = persist_together(session, instances)
        after(instances)
        return outcomes


@pytest.fixture
def persistence(box: Box, monkeypatch: pytest.MonkeyPatch) -> Persistence:
    """All instances that wait are one batch, because there is one thread."""
    box.set_dequeuing(ServiceClass.ORCHESTRATIONS, threads=1)
    persistence = Persistence()
    monkeypatch.setattr(worker, "persist_together", persistence.persist)
    return persistence


def raise_unavailable(instances: Sequence[ActiveInstance]) -> None:
    raise MessageBoxUnavailable("The connection was lost.")


def test_one_transaction_ends_several_instances(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, persistence: Persistence
) -> None:
    """ORC-30: a send and the end are one persistence point."""
    apply_orchestrations(box, tmp_path, ECHO)
    publish(box, "order", *map(str, range(20)))
    start_host(recorder)
    wait_until(lambda: sent(recorder) == sorted(b"echo %d" % n for n in range(20)), what="all messages")
    assert persistence.sizes == [20]
    assert box.count("orchestration instances") == box.count("orchestration messages") == 0
    assert check(box.connection) == []


def test_an_instance_that_has_ended_is_freed_without_the_garbage_collector(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, persistence: Persistence
) -> None:
    """The collector would visit all that the process keeps in memory, again and again."""
    ended: list[weakref.ref[ActiveInstance]] = []
    persistence.after = lambda instances: ended.extend(map(weakref.ref, instances))
    apply_orchestrations(box, tmp_path, ECHO)
    publish(box, "order", "1", "2")
    gc.disable()
    try:
        start_host(recorder)
        wait_until(lambda: len(sent(recorder)) == 2, what="the messages")
        publish(box, "order", "3")  # the worker refers to a batch until it takes the next one
        wait_until(lambda: not any(instance() for instance in ended), what="instances that are freed")
    finally:
        gc.enable()


def test_an_instance_that_fails_leaves_the_others_of_its_batch_alone(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, persistence: Persistence
) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    publish(box, "order", "1", "unroutable", "2", "port", "3", "value", "4", "error", "5")
    start_host(recorder)
    expected = [b"echo 1", b"echo 2", b"echo 3", b"echo 4", b"echo 5", b"nobody subscribes"]
    wait_until(lambda: sent(recorder) == expected, what="the messages of the others")
    wait_until(lambda: box.count("unsuspended orchestrations") == 0, what="their end")
    errors = sorted(str(one.error_code) for one in box.orchestration_instances())
    assert errors == ["NOT_FOUND", "ORCHESTRATION", "PUBLISH"]
    assert persistence.sizes[0] == 8
    assert check(box.connection) == []


def test_a_delivery_is_awaited_together_with_an_unroutable_send(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, persistence: Persistence
) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    publish(box, "order", "deliver", "unroutable")
    start_host(recorder)
    expected = [b"delivered", b"echo deliver", b"nobody subscribes"]
    wait_until(lambda: sent(recorder) == expected, what="the messages of both")
    wait_until(lambda: box.count("orchestration instances") == 0, what="their end")
    assert persistence.sizes[0] == 2
    assert check(box.connection) == []


def test_an_instance_that_cannot_be_stored_leaves_the_others_of_its_batch_alone(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, persistence: Persistence
) -> None:
    """PostgreSQL stores no zero bytes in JSON."""
    apply_orchestrations(
        box,
        tmp_path,
        r"""
        @app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
        async def wait(order: Message) -> None:
            replies = Replies.of(order)
            if order.data == b"1":
                await orchestrations.send(Message.of(b""), to="".join(["\0"]))
            await replies.receive()
        """,
    )
    for number in range(3):
        publish(box, "order", str(number), key=str(number))
    start_host(recorder)
    wait_until(lambda: box.count("unclaimed orchestrations") == 3, what="all instances stored")
    assert box.count("suspended orchestrations") == 1
    assert box.count("journal entries") == box.count("instance subscriptions") == 2
    assert check(box.connection) == []


def test_a_claim_that_is_lost_in_a_batch_discards_only_its_instance(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, persistence: Persistence
) -> None:
    apply_orchestrations(box, tmp_path, ECHO)
    publish(box, "order", *map(str, range(5)))

    def take_over(instances: Sequence[ActiveInstance]) -> None:
        box.claim_orchestration(instances[2].claimed.instance_id)

    persistence.before = take_over
    host = start_host(recorder)
    wait_until(lambda: host.orchestration_counts["completed"] == 4, what="the end of the others")
    assert host.orchestration_counts["discarded"] == 1
    assert box.count("orchestration instances") == 1
    wait_until(lambda: len(recorder.sent) == 4, what="the messages of the others")
    box.release_orchestrations()
    wait_until(lambda: sent(recorder) == [b"echo %d" % n for n in range(5)], what="the message of the last instance")
    assert check(box.connection) == []


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_batch_whose_connection_is_lost_is_neither_lost_nor_sent_twice(
    box: Box,
    tmp_path: Path,
    start_host: StartHost,
    recorder: RecordingAdapter,
    persistence: Persistence,
    is_stored: bool,
) -> None:
    """The connection is lost before the transaction, or with the answer of its COMMIT."""
    apply_orchestrations(
        box,
        tmp_path,
        """
        @app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
        async def ask(order: Message) -> None:
            replies = Replies.of(order)
            await orchestrations.send(Message.of(b"ask " + order.data), to="Out")
            number = await orchestrations.step(lambda: 7)
            await replies.receive()
            await orchestrations.send(Message.of(b"%d" % number), to="Out")
        """,
    )
    for number in range(3):
        publish(box, "order", str(number), key=str(number))
    if is_stored:
        persistence.after = raise_unavailable
    else:
        persistence.before = raise_unavailable
    start_host(recorder)
    wait_until(lambda: sum(one.journal_length >= 2 for one in box.orchestration_instances()) == 3, what="the steps")
    for number in range(3):
        publish(box, "reply", "", key=str(number))
    expected = [b"7", b"7", b"7", b"ask 0", b"ask 1", b"ask 2"]
    wait_until(lambda: sent(recorder) == expected, what="each message once")
    wait_until(lambda: box.count("orchestration instances") == 0, what="the end of the instances")
    assert check(box.connection) == []


def test_instances_in_the_batch_of_an_endless_one_continue_in_another_thread(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, persistence: Persistence
) -> None:
    apply_orchestrations(
        box,
        tmp_path,
        f"""
        import threading
        from pathlib import Path

        released = Path({str(tmp_path)!r}) / "released"

        @app.orchestration(activate=Kind == "order", host="Default")
        async def echo(order: Message) -> None:
            while order.data == b"endless" and not released.exists():
                threading.Event().wait(0.01)
            await orchestrations.send(Message.of(b"echo " + order.data), to="Out")
        """,
    )
    publish(box, "order", "endless", "1", "2")
    start_host(recorder, settings=replace(SETTINGS, turn_limit=timedelta(seconds=0.3)))
    wait_until(lambda: sent(recorder) == [b"echo 1", b"echo 2"], what="the others")
    assert box.count("suspended orchestrations") == 1
    (tmp_path / "released").touch()
    resume(box.connection, box.orchestration_instances()[0].instance_id)
    wait_until(lambda: sent(recorder) == [b"echo 1", b"echo 2", b"echo endless"], what="the resumed instance")
    assert check(box.connection) == []


def test_a_receive_finds_its_message_behind_hundreds_of_others(
    box: Box, tmp_path: Path, start_host: StartHost, recorder: RecordingAdapter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only some messages of an instance are in memory at a time (THR-10)."""
    add, in_memory = ActiveInstance._add, []

    def add_and_count(instance: ActiveInstance, messages: Sequence[ClaimedMessage]) -> None:
        add(instance, messages)
        in_memory.append(len(instance._messages))

    monkeypatch.setattr(ActiveInstance, "_add", add_and_count)
    count = 3 * MESSAGES_AT_A_TIME
    apply_orchestrations(
        box,
        tmp_path,
        f"""
        @app.orchestration(activate=Kind == "order", convoy=[Key], correlations=[Replies], host="Default")
        async def collect(first: Message) -> None:
            reply = await Replies.of(first).receive()
            texts = [first.data, reply.data]
            while len(texts) < {count + 1}:
                texts.append((await orchestrations.receive()).data)
            await orchestrations.send(Message.of(b" ".join(texts)), to="Out")
        """,
    )
    publish(box, "order", "0", key="k")
    start_host(recorder)
    wait_until(lambda: box.count("journal entries") == 1, what="the waiting instance")
    publish(box, "order", *map(str, range(1, count)), key="k")
    publish(box, "reply", "reply", key="k")
    expected = b" ".join([b"0", b"reply", *(b"%d" % n for n in range(1, count))])
    wait_until(lambda: sent(recorder) == [expected], what="all messages in order")
    assert max(in_memory) <= 2 * MESSAGES_AT_A_TIME
    wait_until(lambda: box.count("orchestration instances") == 0, what="the end of the instance")
    assert check(box.connection) == []
