"""Situations of long-running processes: who is started, who gets a message, and what comes too late.

All tests share one host. Each has keys of its own."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from postroom.errors import PublishFailed
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.messagebox.maintenance.check import check
from postroom.properties import Property
from tests.integration.hosts.conftest import SETTINGS
from tests.support.box import Box, open_box
from tests.support.databases import Databases
from tests.support.folders import open_folder
from tests.support.orchestrations import Kind, apply_orchestrations, publish
from tests.support.recording_adapter import RecordingAdapter
from tests.support.waiting import wait_until

Topic = Property("Tests.Topic", str)
APPLICATION = """
from postroom.errors import RoutingFailure

Votes = Correlation(Key, filter=Kind == "vote")


def tell(order: Message, text: str) -> Message:
    return Message.of(f"{order.context[Key]} {text}".encode())


@app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
async def ship(order: Message) -> None:
    replies = Replies.of(order)
    await orchestrations.send(tell(order, "ship waits"), to="Out")
    reply = await replies.receive()
    await orchestrations.send(tell(order, f"ship got {reply.data.decode()}"), to="Out")


@app.orchestration(activate=Kind == "order", host="Default")
async def bill(order: Message) -> None:
    await orchestrations.send(Message.of(b"", promoted={Kind: "billed", Key: order.context[Key]}))


@app.orchestration(activate=Kind == "billed", host="Default")
async def book(billed: Message) -> None:
    await orchestrations.send(tell(billed, "booked"), to="Out")


@app.orchestration(activate=Kind == "race", correlations=[Replies], host="Default")
async def race(order: Message) -> None:
    async with asyncio.timeout(3600):
        reply = await Replies.of(order).receive()
    await orchestrations.send(tell(order, reply.data.decode()), to="Out")


@app.orchestration(activate=Kind == "alarms", host="Default")
async def ring(order: Message) -> None:
    alarms = []

    async def wait(seconds: float) -> None:
        await orchestrations.delay(seconds)
        alarms.append(str(seconds))

    await asyncio.gather(wait(0.3), wait(0.1), wait(0.2))
    await orchestrations.send(tell(order, " ".join(alarms)), to="Out")


@app.orchestration(activate=Kind == "election", correlations=[Votes], host="Default")
async def count(order: Message) -> None:
    votes = Votes.of(order)
    total = 0
    for _ in range(int(order.data)):
        total += int((await votes.receive()).data)
    await orchestrations.send(tell(order, f"{total}"), to="Out")


@app.orchestration(activate=Kind == "question", host="Default")
async def answer(question: Message) -> None:
    text = b"answer to " + question.data
    await orchestrations.send(Message.of(text, promoted={Kind: "reply", Key: question.context[Key]}))


@app.orchestration(activate=Kind == "ask", correlations=[Replies], host="Default")
async def ask(order: Message) -> None:
    replies = Replies.of(order)
    await orchestrations.send(Message.of(order.data, promoted={Kind: "question", Key: order.context[Key]}))
    await orchestrations.send(tell(order, (await replies.receive()).data.decode()), to="Out")


Topic = Property("Tests.Topic", str)
app.property(Topic)
app.send_port("Topics", adapters.Null(), filter=Topic.exists(), host="Default")
Comments = Correlation(Topic, filter=Kind == "comment")


@app.orchestration(activate=Kind == "properties", correlations=[Comments], host="Default")
async def send_each_way(order: Message) -> None:
    promoted, written = tell(order, "promoted"), tell(order, "written")
    promoted = promoted.with_context(promoted.context.promote(Topic, "prices"))
    Comments.of(promoted)
    await orchestrations.send(promoted, to="Out")
    await orchestrations.send(written.with_context(written.context.write(Topic, "prices")), to="Out")
    await orchestrations.send(tell(order, "without"), to="Out")


@app.orchestration(activate=Kind == "change", host="Default")
async def change(order: Message) -> None:
    draft = tell(order, "draft")
    await orchestrations.send(draft, to="Out")
    try:
        draft.context = draft.context.write(Kind, "changed")
    except AttributeError:
        await orchestrations.send(draft.with_context(draft.context.write(Kind, "changed")), to="Out")


@app.orchestration(correlations=[Replies], host="Default")
async def wait_for_reply(order: Message) -> None:
    reply = await Replies.of(order).receive()
    await orchestrations.send(tell(order, reply.data.decode()), to="Out")


@app.orchestration(activate=Kind == "parent", host="Default")
async def start_and_reply(order: Message) -> None:
    await orchestrations.start(wait_for_reply, order)
    try:
        await orchestrations.send(Message.of(b"early", promoted={Kind: "reply", Key: order.context[Key]}))
    except RoutingFailure:
        await orchestrations.send(tell(order, "nobody waits"), to="Out")
"""


@dataclass(frozen=True)
class Running:
    """A host that runs the orchestrations, and what it has sent."""

    box: Box
    url: str
    recorder: RecordingAdapter

    def publish(self, kind: str, *bodies: str, key: str) -> None:
        publish(self.box, kind, *bodies or [""], key=key)

    def sent(self, key: str) -> list[str]:
        """Return what was sent for a key, in order."""
        texts = [one.body.decode() for one in self.recorder.sent]
        return [text.removeprefix(f"{key} ") for text in texts if text.startswith(f"{key} ")]

    def wait_for(self, key: str, *texts: str) -> None:
        wait_until(lambda: sorted(self.sent(key)) == sorted(texts), what=f"{texts}")

    def sent_by(self, port: str, key: str) -> list[Message]:
        """Return the messages for a key that a port has sent."""
        return [one.message for one in self.recorder.sent if one.port == port and one.body.startswith(key.encode())]

    def wait_for_end(self) -> None:
        wait_until(lambda: self.box.count("orchestration instances") == 0, what="the end of all instances")


@pytest.fixture(scope="module")
def running(databases: Databases) -> Iterator[Running]:
    recorder = RecordingAdapter()
    with databases.open_box() as box, open_folder() as folder:
        apply_orchestrations(box, folder, APPLICATION)
        with HostInstance(box.url, "Default", folder, settings=SETTINGS, as_role=True, build_adapter=recorder.build):
            yield Running(box, box.url, recorder)
        assert check(box.connection) == []


def new_key() -> str:
    return uuid.uuid4().hex


def test_one_message_activates_every_orchestration_that_subscribes_to_it(running: Running) -> None:
    """ORC-10: a plain publish."""
    running.publish("order", key=(key := new_key()))
    running.wait_for(key, "ship waits", "booked")
    running.publish("reply", "1", key=key)
    running.wait_for(key, "ship waits", "booked", "ship got 1")
    running.wait_for_end()


def test_an_orchestration_is_activated_by_the_message_of_another_one(running: Running) -> None:
    running.publish("billed", key=(key := new_key()))
    running.wait_for(key, "booked")


def test_two_instances_with_the_same_correlation_both_get_the_message(running: Running) -> None:
    """Only a convoy lets the second message join the first instance."""
    running.publish("order", "", "", key=(key := new_key()))
    running.wait_for(key, *["ship waits", "booked"] * 2)
    running.publish("reply", "1", key=key)
    running.wait_for(key, *["ship waits", "booked", "ship got 1"] * 2)
    running.wait_for_end()


def test_a_message_for_an_instance_that_has_ended_has_no_subscribers(running: Running) -> None:
    running.publish("order", key=(key := new_key()))
    running.wait_for(key, "ship waits", "booked")
    running.publish("reply", "1", key=key)
    running.wait_for_end()
    with pytest.raises(PublishFailed):
        running.publish("reply", "2", key=key)


def test_a_message_for_an_instance_that_never_existed_has_no_subscribers(running: Running) -> None:
    with pytest.raises(PublishFailed):
        running.publish("reply", "1", key=new_key())


def test_a_timeout_ends_with_its_instance(running: Running) -> None:
    running.publish("race", key=(key := new_key()))
    wait_until(lambda: running.box.count("orchestrations with a timer") == 1, what="a timer")
    running.publish("reply", "in time", key=key)
    running.wait_for(key, "in time")
    running.wait_for_end()


def test_several_timeouts_come_in_the_order_of_their_times(running: Running) -> None:
    running.publish("alarms", key=(key := new_key()))
    running.wait_for(key, "0.1 0.2 0.3")
    running.wait_for_end()


def test_concurrent_messages_for_one_instance_are_all_counted(running: Running) -> None:
    running.publish("election", "40", key=(key := new_key()))
    wait_until(lambda: running.box.count("unclaimed orchestrations") == 1, what="it waits")

    def vote(numbers: range) -> None:
        with open_box(running.url) as box:
            publish(box, "vote", *map(str, numbers), key=key)

    with ThreadPoolExecutor() as pool:
        list(pool.map(vote, [range(start, start + 10) for start in range(0, 40, 10)]))
    running.wait_for(key, str(sum(range(40))))
    running.wait_for_end()


@pytest.mark.parametrize("special", ['it\'s "quoted"', "50 % {x} \\n", "ключ 🗝", " spaces ", "x" * 200])
def test_any_text_correlates(running: Running, special: str) -> None:
    key = f"{new_key()}{special}"
    running.publish("race", key=key)
    wait_until(lambda: running.box.count("unclaimed orchestrations") == 1, what="it waits")
    running.publish("reply", "found", key=key)
    wait_until(lambda: [one for one in running.sent(key) if one == "found"] == ["found"], what="the reply")
    running.wait_for_end()


def test_orchestrations_ask_and_answer_each_other(running: Running) -> None:
    running.publish("ask", "7", key=(key := new_key()))
    running.wait_for(key, "answer to 7")
    running.wait_for_end()


def test_an_orchestration_decides_what_it_promotes(running: Running) -> None:
    """CTX-23: a value that is only written does not route, and a correlation set promotes nothing."""
    running.publish("properties", key=(key := new_key()))
    running.wait_for(key, "promoted", "promoted", "written", "without")
    [routed] = running.sent_by("Topics", key)
    assert routed.data == f"{key} promoted".encode()
    contexts = {one.data.split()[1]: one.context for one in running.sent_by("Out", key)}
    assert {text: context.get(Topic) for text, context in contexts.items()} == {
        b"promoted": "prices",
        b"written": "prices",
        b"without": None,
    }
    running.wait_for_end()


def test_a_message_that_was_constructed_never_changes(running: Running) -> None:
    """ORC-54: a changed message is another one."""
    running.publish("change", key=(key := new_key()))
    running.wait_for(key, "draft", "draft")
    messages = running.sent_by("Out", key)
    assert len({one.message_id for one in messages}) == 2
    assert sorted(str(one.context.get(Kind)) for one in messages) == ["None", "changed"]
    running.wait_for_end()


def test_an_orchestration_that_was_just_started_does_not_wait_yet(running: Running) -> None:
    """ORC-07: a message that is published to it at once has no subscriber."""
    running.publish("parent", key=(key := new_key()))
    running.wait_for(key, "nobody waits")
    wait_until(lambda: running.box.count("waiting orchestrations") == 1, what="it waits")
    running.publish("reply", "late", key=key)
    running.wait_for(key, "nobody waits", "late")
    running.wait_for_end()
