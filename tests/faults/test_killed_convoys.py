"""Hosts are killed while instances of convoys end all the time. Each message is received once, and in order."""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.messagebox.maintenance.check import check
from tests.support.box import Box
from tests.support.orchestration_host import start_orchestration_host
from tests.support.orchestrations import Key, Kind, apply_orchestrations, publish
from tests.support.waiting import wait_until

#: Each message that was sent stays in the suspended queue, because the port is stopped.
CODE = """
app.send_port("Stopped", adapters.Null(), host="Default", state="stopped")

@app.orchestration(activate=Kind == "order", convoy=[Key], host="Default")
async def collect(first: Message) -> None:
    texts = [first.data, *[(await orchestrations.receive()).data for _ in range(2)]]
    await orchestrations.send(Message.of(b" ".join(texts)), to="Stopped")
"""
KEYS = "ABCD"
PROGRAMS, MESSAGES, KILLS = 3, 60, 4
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
HOLD = """
    CREATE FUNCTION public.hold() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_advisory_xact_lock_shared(4711); RETURN NULL; END'
"""


@pytest.mark.parametrize("kills", [0, KILLS])
def test_instances_that_end_all_the_time_receive_each_message_once_and_in_order(
    box: Box, tmp_path: Path, kills: int
) -> None:
    """ACC-61, ORC-25, 26: several programs publish messages of several keys, and two hosts end their instances."""
    apply_orchestrations(box, tmp_path, CODE)
    chance = random.Random(7)
    with ExitStack() as stack:
        hosts = [start_orchestration_host(stack, box.url, tmp_path) for _ in range(2)]
        with ThreadPoolExecutor() as pool:
            programs = [pool.submit(publish_orders, box, program) for program in range(PROGRAMS)]
            for number in range(kills):
                time.sleep(chance.uniform(0.2, 0.8))  # the time of the kill is random
                hosts[number % 2].kill()
                hosts[number % 2] = start_orchestration_host(stack, box.url, tmp_path)
            published = sum((program.result() for program in programs), Counter[str]())
        for key in KEYS:  # no instance waits at the end
            publish(box, "order", *["end"] * (-published[key] % 3), key=key)
        expected = sum((count + 2) // 3 for count in published.values())
        wait_until(lambda: box.count("suspended") >= expected, what="the end of all instances")
        wait_until(lambda: box.count("orchestration instances") == 0, what="no instance")
    received = read_received(box)
    assert Counter({key: len(texts) for key, texts in received.items()}) == Counter(
        {key: published[key] for key in KEYS}
    )
    for texts in received.values():
        for program in range(PROGRAMS):
            numbers = [int(text.split("-")[1]) for text in texts if text.startswith(f"{program}-")]
            assert numbers == sorted(set(numbers))
    assert check(box.connection) == []


def publish_orders(box: Box, program: int) -> Counter[str]:
    """Publish orders of all keys, one or a few at a time. Return the number of each key."""
    chance = random.Random(program)
    published: Counter[str] = Counter()
    with connect(box.url) as connection:
        agent = box.agent(connection=connection)
        while published.total() < MESSAGES:
            orders = []
            for _ in range(chance.choice([1, 1, 3, 7])):
                key = chance.choice(KEYS)
                published[key] += 1
                text = f"{key} {program}-{published.total()}"
                orders.append(Message.of(text.encode(), promoted={Kind: "order", Key: key}))
            agent.publish(orders)
    return published


def read_received(box: Box) -> dict[str, list[str]]:
    """Return what the instances have received, by key, in the order in which they have sent it."""
    received: defaultdict[str, list[str]] = defaultdict(list)
    for row in sorted(box.suspended_rows(), key=lambda row: row.seq):
        texts = (row.body or b"").decode().replace("end", "").split()
        assert set(texts[::2]) == {texts[0]}
        received[texts[0]] += texts[1::2]
    return received


@pytest.mark.parametrize("moment", ["BEFORE DELETE", "AFTER INSERT"])
def test_an_end_that_is_killed_activates_the_next_instance_once(box: Box, tmp_path: Path, moment: str) -> None:
    """The host is killed in the transaction of the end: before the values of the convoy are free, or after the next
    instance has them."""
    apply_orchestrations(box, tmp_path, CODE)
    publish(box, "order", *"12345678", key="K")
    box.connection.execute(HOLD)
    box.add_trigger(
        "hold", "convoys", "BEFORE DELETE" if moment == "BEFORE DELETE" else "AFTER INSERT", "public.hold()"
    )
    with ExitStack() as stack, connect(box.url) as holder:
        holder.execute("SELECT pg_advisory_lock(4711)")
        killed = start_orchestration_host(stack, box.url, tmp_path)
        wait_until(lambda: box.one(WAITING) == 1, what="the host to end its first instance")
        killed.kill()
        killed.wait()
        start_orchestration_host(stack, box.url, tmp_path)
        holder.execute("SELECT pg_advisory_unlock(4711)")
        publish(box, "order", "9", key="K")
        wait_until(lambda: box.count("suspended") == 3, what="three instances")
        wait_until(lambda: box.count("orchestration instances") == 0, what="no instance")
    assert [row.body for row in box.suspended_rows()] == [b"1 2 3", b"4 5 6", b"7 8 9"]
    assert check(box.connection) == []
