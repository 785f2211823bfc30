"""ACC-02, 25, 60 … 63: orchestrations, from the application to the messages that they send."""

from __future__ import annotations

import threading
from datetime import timedelta
from pathlib import Path

import pytest

import postroom
from postroom import Message, Property
from postroom.errors import PostroomError, PublishFailed
from tests.support.installation import Installation
from tests.support.waiting import PATIENCE, wait_until

Kind = Property("Shop.Kind", str)
Key = Property("Shop.Key", str)
Line = Property("Shop.Line", int)
HEAD = """
import os
import signal
from pathlib import Path
from postroom import Message, orchestrations
from postroom.orchestrations import Correlation

Kind = Property("Shop.Kind", str)
Key = Property("Shop.Key", str)
app.property(Kind, Key)
Replies = Correlation(Key, filter=Kind == "reply")
app.send_port("P", adapters.File("out/p"))
"""
COLLECT = """
@app.orchestration(activate=Kind == "order", correlations=[Replies])
async def collect(order: Message) -> None:
    replies = Replies.of(order)
    await orchestrations.send(Message.of(b"asked"), to="P")
    await orchestrations.send(Message.of((await replies.receive()).data), to="P")
"""
CONVOY = """
@app.orchestration(activate=Kind == "order", convoy=[Key])
async def collect(first: Message) -> None:
    texts = [first.data, *[(await orchestrations.receive()).data for _ in range({more})]]
    await orchestrations.send(Message.of(b"".join(texts)), to="P")
"""


def publish(installation: Installation, kind: str, *bodies: str, key: str = "k") -> None:
    with postroom.connect(installation.database) as client:
        for body in bodies:
            client.publish(body.encode(), promoted={Kind: kind, Key: key})


def wait_for_texts(installation: Installation, *texts: str, folder: str = "out/p") -> None:
    expected = sorted(text.encode() for text in texts)
    wait_until(lambda: sorted(installation.read_files(folder)) == expected, what=f"{expected} in {folder}")


def wait_for_instances(installation: Installation, count: int) -> None:
    show = ("orchestration", "show", "collect")
    wait_until(lambda: installation.run_json(*show)["instances"] == count, what=f"{count} instances")


def test_a_message_that_is_sent_through_a_bound_port_reaches_other_subscribers_too(installation: Installation) -> None:
    """SUB-01, ACC-02: port Q has a filter for the message type that the orchestration sends through port P."""
    installation.apply(
        HEAD
        + """
app.send_port("Q", adapters.File("out/q"), filter=BTS.MessageType == "invoice")

@app.orchestration(activate=Kind == "order")
async def bill(order: Message) -> None:
    await orchestrations.send(Message.of(b"bill", promoted={BTS.MessageType: "invoice"}), to="P")
"""
    )
    with installation.run_host():
        publish(installation, "order", "")
        wait_for_texts(installation, "bill", folder="out/p")
        wait_for_texts(installation, "bill", folder="out/q")


def test_a_stopped_orchestration_is_not_activated_and_its_instance_gets_its_message(installation: Installation) -> None:
    """ACC-25."""
    installation.apply(HEAD + COLLECT)
    with installation.run_host():
        publish(installation, "order", "", key="a")
        wait_for_texts(installation, "asked")
        installation.run("orchestration", "stop", "collect")
        publish(installation, "order", "", key="b")
        [suspended] = installation.list_suspended()
        assert (suspended["error_code"], suspended["service"]) == ("PORT_STOPPED", "collect")
        publish(installation, "reply", "answer", key="a")
        wait_for_texts(installation, "asked", "answer")


def test_messages_of_a_convoy_that_came_while_the_host_was_stopped_join_one_instance_per_key(
    installation: Installation,
) -> None:
    """ACC-60, ORC-21: five messages with key K and three with key L are two instances, each in order."""
    installation.apply(
        HEAD
        + """
@app.orchestration(activate=Kind == "order", convoy=[Key])
async def collect(first: Message) -> None:
    count = 5 if first.context[Key] == "K" else 3
    texts = [first.data, *[(await orchestrations.receive()).data for _ in range(count - 1)]]
    await orchestrations.send(Message.of(b"".join(texts)), to="P")
"""
    )
    for number in range(1, 6):
        publish(installation, "order", str(number), key="K")
        if number <= 3:
            publish(installation, "order", "abc"[number - 1], key="L")
    assert len(installation.run_json("instance", "list")) == 2
    with installation.run_host():
        wait_for_texts(installation, "12345", "abc")
        wait_for_instances(installation, 0)
    assert installation.list_suspended() == []


def test_messages_before_and_after_the_end_of_a_convoy_start_the_next_instance(installation: Installation) -> None:
    """ACC-61: also the message that was queued for the instance when it ended."""
    installation.apply(HEAD + CONVOY.replace("{more}", "1"))
    publish(installation, "order", "1", "2", "3")
    with installation.run_host():
        wait_for_texts(installation, "12")
        publish(installation, "order", "4", "5", "6")
        wait_for_texts(installation, "12", "34", "56")
        wait_for_instances(installation, 0)
    assert installation.list_suspended() == []


def test_a_message_that_nobody_waits_for_any_more_can_be_routed_again(installation: Installation) -> None:
    """ORC-26, 27: a reply that comes too late for its order reaches the next one with the same key."""
    installation.apply(
        HEAD
        + """
Stops = Correlation(Key, filter=Kind == "stop")

@app.orchestration(activate=Kind == "order", correlations=[Replies, Stops])
async def collect(order: Message) -> None:
    replies, stops = Replies.of(order), Stops.of(order)
    if order.data == b"first":
        await stops.receive()
    else:
        await orchestrations.send(Message.of((await replies.receive()).data), to="P")
"""
    )
    show = ("orchestration", "show", "collect")

    def order(text: str) -> None:
        publish(installation, "order", text)
        wait_until(lambda: installation.run_json(*show)["waiting_instances"] == 1, what="the instance waits")

    with installation.run_host():
        order("first")
        publish(installation, "reply", "late")
        publish(installation, "stop", "")
        wait_for_instances(installation, 0)
        [zombie] = installation.list_suspended("not-resumable")
        assert (zombie["error_code"], zombie["service"]) == ("0xC0C01B4C", "collect")
        instance = zombie["instance_id"]
        refused = installation.run("instance", "resume", instance, exit_code=5)
        assert f"postroom instance reroute {instance}" in " ".join(refused.split())
        order("second")
        installation.run("instance", "reroute", instance)
        wait_for_texts(installation, "late")
        wait_for_instances(installation, 0)
    assert installation.list_suspended() == []


def test_a_reply_that_is_published_at_once_reaches_the_instance(installation: Installation, database: str) -> None:
    """ACC-62, ORC-02, ORC-03: a program answers each request as soon as it receives it. The subscription for the reply
    exists by then, although the instance waits for a third message first."""
    installation.apply(
        HEAD
        + """
Starts = Correlation(Key, filter=Kind == "start")

@app.orchestration(activate=Kind == "order", correlations=[Replies, Starts])
async def collect(order: Message) -> None:
    replies, starts = Replies.of(order), Starts.of(order)
    key = order.context[Key]
    await orchestrations.send(Message.of(key.encode(), promoted={Kind: "request", Key: key}))
    await starts.receive()
    await orchestrations.send(Message.of((await replies.receive()).data), to="P")
"""
    )
    keys = [f"k{number}" for number in range(10)]
    problems: list[Exception] = []

    def answer() -> None:
        try:
            with postroom.connect(database) as program:
                subscription = program.subscribe("supplier", "Shop.Kind == 'request'", lease=timedelta(minutes=10))
                is_subscribed.set()
                for _ in keys:
                    while (received := subscription.receive(timeout=1)) is None:
                        pass
                    key = received.message.data.decode()
                    for kind in ("reply", "start"):
                        program.publish(key.encode(), promoted={Kind: kind, Key: key})
                    received.complete()
                subscription.close()
        except PostroomError as error:
            problems.append(error)

    is_subscribed = threading.Event()
    supplier = threading.Thread(target=answer)
    supplier.start()
    assert is_subscribed.wait(PATIENCE)
    with installation.run_host():
        for key in keys:
            publish(installation, "order", "", key=key)
        supplier.join()
        assert problems == []
        wait_for_texts(installation, *keys)


def test_a_message_belongs_to_a_correlation_set_if_all_of_its_values_are_equal(
    installation: Installation, database: str
) -> None:
    """ORC-04, ORC-06: a function and an orchestration that the instance calls receive by the sets of the instance. An
    orchestration that it starts has sets of its own."""
    installation.apply(
        HEAD
        + """
Line = Property("Shop.Line", int)
app.property(Line)
Offers = Correlation(Key, Line, filter=Kind == "offer")

async def read_offer(offers: orchestrations.CorrelationSet) -> bytes:
    return (await offers.receive()).data

@app.orchestration(correlations=[Offers])
async def tell(order: Message) -> None:
    offers = Offers.of({Key: order.context[Key], Line: 8})
    await orchestrations.send(Message.of(b"started: " + (await offers.receive()).data), to="P")

@app.orchestration(correlations=[Offers])
async def confirm(order: Message, offers: orchestrations.CorrelationSet | None = None) -> None:
    await orchestrations.send(Message.of(b"called: " + (await offers.receive()).data), to="P")

@app.orchestration(activate=Kind == "order", correlations=[Offers])
async def collect(order: Message) -> None:
    await orchestrations.start(tell, order)
    offers = Offers.of({Key: order.context[Key], Line: 7})
    await orchestrations.send(Message.of(b"function: " + await read_offer(offers)), to="P")
    await confirm(order, offers)
"""
    )
    with postroom.connect(database) as program, installation.run_host():

        def offer(key: str, line: int | None, body: bytes) -> None:
            program.publish(body, promoted={Kind: "offer", Key: key, Line: line})

        publish(installation, "order", "", key="a")
        wait_until(lambda: count_waiting(installation) == 2, what="both instances")
        for key, line in (("b", 7), ("a", 9), ("a", None)):
            with pytest.raises(PublishFailed, match="no subscriber"):
                offer(key, line, b"lost")
        offer("a", 7, b"1")
        offer("a", 8, b"2")
        offer("a", 7, b"3")
        wait_for_texts(installation, "function: 1", "started: 2", "called: 3")
    installation.run("instance", "terminate", "--all", "--state", "not-resumable", "--yes")


def count_waiting(installation: Installation) -> int:
    return len(installation.run_json("instance", "list", "--state", "waiting"))


def test_an_orchestration_receives_what_it_publishes_itself(installation: Installation) -> None:
    """FLT-09: what an instance publishes activates an orchestration whose filter it matches, also its own."""
    installation.apply(
        HEAD
        + """
@app.orchestration(activate=Kind == "count")
async def collect(last: Message) -> None:
    number = int(last.data) + 1
    await orchestrations.send(Message.of(b"%d" % number), to="P")
    if number < 5:
        await orchestrations.send(Message.of(b"%d" % number, promoted={Kind: "count"}))
"""
    )
    with installation.run_host():
        publish(installation, "count", "0")
        wait_for_texts(installation, *"12345")


def test_a_message_for_an_instance_overtakes_activations(installation: Installation, tmp_path: Path) -> None:
    """DEQ-12: an instance that waits gets its message before the orders that were published earlier."""
    seen = tmp_path / "seen"
    installation.apply(
        HEAD
        + f"""
@app.orchestration(activate=Kind == "order", correlations=[Replies])
async def collect(order: Message) -> None:
    with Path({str(seen)!r}).open("a") as file:
        file.write(order.context[Key] + "\\n")
    if order.context[Key] == "first":
        reply = await Replies.of(order).receive()
        with Path({str(seen)!r}).open("a") as file:
            file.write("reply\\n")
"""
    )
    installation.run("service-class", "set", "orchestrations", "--threads", "1")
    publish(installation, "order", "", key="first")
    with installation.run_host():
        wait_until(lambda: count_waiting(installation) == 1, what="a waiting instance")
    seen.unlink()
    with postroom.connect(installation.database) as client:
        client.publish_many([Message.of(b"", promoted={Kind: "order", Key: f"k{number}"}) for number in range(100)])
    publish(installation, "reply", "", key="first")
    with installation.run_host():
        wait_until(lambda: installation.run_json("instance", "list") == [], what="the end of all instances")
    lines = seen.read_text().split()
    # The replay of the first order writes its key again.
    assert lines.index("reply") <= 1
    assert len(lines) >= 101


def test_a_message_is_received_again_after_a_crash_before_the_next_persistence_point(
    installation: Installation, tmp_path: Path
) -> None:
    """ACC-63, ORC-32: the host process kills itself right after it has received the reply."""
    crashed = tmp_path / "crashed"
    installation.apply(
        HEAD
        + f"""
@app.orchestration(activate=Kind == "order", correlations=[Replies])
async def collect(order: Message) -> None:
    replies = Replies.of(order)
    await orchestrations.send(Message.of(b"asked"), to="P")
    reply = await replies.receive()
    if not Path({str(crashed)!r}).exists():
        Path({str(crashed)!r}).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    await orchestrations.send(Message.of(reply.data), to="P")
"""
    )
    host = installation.start_host()
    publish(installation, "order", "")
    wait_for_texts(installation, "asked")
    publish(installation, "reply", "answer")
    wait_until(lambda: not host.is_running, what="the crash")
    with installation.run_host():
        wait_for_texts(installation, "asked", "answer")
        wait_for_instances(installation, 0)
    assert crashed.exists()
    assert installation.list_suspended() == []
