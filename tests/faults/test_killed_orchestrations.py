"""Hosts are killed while they run orchestrations. Every instance ends, and every message is published exactly once."""

from __future__ import annotations

import random
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from postroom.messagebox.maintenance.check import check
from tests.support.box import Box
from tests.support.orchestration_host import start_orchestration_host
from tests.support.orchestrations import apply_orchestrations, publish
from tests.support.waiting import wait_until

INSTANCES = 40
KILLS = 6

#: Each message stays in the suspended queue, because the port is stopped: what was published can be counted.
CODE = """
app.send_port("Stopped", adapters.Null(), host="Default", state="stopped")

@app.orchestration(host="Default")
async def check(order: Message) -> None:
    await orchestrations.send(Message.of(f"check {order.context[Key]}".encode()), to="Stopped")
    await orchestrations.send(Message.of(b""), to=orchestrations.reply_port(order))

@app.orchestration(activate=Kind == "order", correlations=[Replies], host="Default")
async def work(order: Message) -> None:
    key = order.context[Key]
    replies, checks = Replies.of(order), orchestrations.open_port()
    await orchestrations.start(check, order, reply_to=checks)
    await orchestrations.send(Message.of(f"ask {key}".encode()), to="Stopped")
    first = await replies.receive()
    await orchestrations.step(str, 1)
    await orchestrations.deliver(Message.of(b""), to="Out")
    await orchestrations.delay(0.2)
    await checks.receive()
    second = await replies.receive()
    text = f"done {key} {first.data.decode()}{second.data.decode()}"
    await orchestrations.send(Message.of(text.encode()), to="Stopped")
"""


def test_every_instance_ends_and_every_message_is_published_once(box: Box, tmp_path: Path) -> None:
    apply_orchestrations(box, tmp_path, CODE)
    keys = [f"k{number}" for number in range(INSTANCES)]
    chance = random.Random(7)
    with ExitStack() as stack:
        hosts = [start_orchestration_host(stack, box.url, tmp_path) for _ in range(2)]
        for key in keys:
            publish(box, "order", "", key=key)
        for number in range(KILLS):
            time.sleep(chance.uniform(0.2, 0.8))  # the time of the kill is random
            if number == 2:
                wait_until(lambda: _count(box)["ask"] == INSTANCES, what="all instances waiting")
                for key in keys:
                    publish(box, "reply", "1", "2", key=key)
            hosts[number % 2].kill()
            hosts[number % 2] = start_orchestration_host(stack, box.url, tmp_path)
        wait_until(lambda: _count(box)["done"] >= INSTANCES, what="the end of all instances")
        wait_until(lambda: box.count("orchestration instances") == 0, what="no instance")
    texts = ("ask {}", "check {}", "done {} 12")
    assert _read_bodies(box) == Counter(text.format(key) for text in texts for key in keys)
    assert check(box.connection) == []


#: Each instance of ``check`` fails, and the one that has started it waits for its reply.
FAILING = """
from postroom.errors import DeliveryFailure

app.send_port("Stopped", adapters.Null(), host="Default", state="stopped")

@app.orchestration(host="Default")
async def check(order: Message) -> None:
    await orchestrations.delay(0.2)
    await orchestrations.step(str, 1)
    raise ValueError(orchestrations.reply_port(order).full_name)

@app.orchestration(activate=Kind == "order", host="Default")
async def work(order: Message) -> None:
    checks = orchestrations.open_port()
    await orchestrations.start(check, order, reply_to=checks)
    try:
        await checks.receive()
    except DeliveryFailure:
        await orchestrations.delay(0.2)
        await orchestrations.send(Message.of(f"failed {order.context[Key]}".encode()), to="Stopped")
"""


def test_every_fault_reaches_the_instance_that_waits_once(box: Box, tmp_path: Path) -> None:
    """RR-11: a second one would be left over when that instance ends."""
    apply_orchestrations(box, tmp_path, FAILING)
    keys = [f"k{number}" for number in range(INSTANCES)]
    chance = random.Random(7)
    with ExitStack() as stack:
        hosts = [start_orchestration_host(stack, box.url, tmp_path) for _ in range(2)]
        for key in keys:
            publish(box, "order", "", key=key)
        for number in range(KILLS):
            time.sleep(chance.uniform(0.2, 0.8))  # the time of the kill is random
            hosts[number % 2].kill()
            hosts[number % 2] = start_orchestration_host(stack, box.url, tmp_path)
        wait_until(lambda: _count(box)["failed"] >= INSTANCES, what="the end of all instances that wait")
        wait_until(lambda: box.count("orchestration instances") == INSTANCES, what="only those that have failed")
    assert _read_bodies(box) == Counter(f"failed {key}" for key in keys)
    assert check(box.connection) == []


def _read_bodies(box: Box) -> Counter[str]:
    return Counter((row.body or b"").decode() for row in box.suspended_rows())


def _count(box: Box) -> Counter[str]:
    return Counter(body.split()[0] for body in _read_bodies(box).elements())
