"""From an ordered receive location through an ordered send port: the receiver gets every order in its order.

The pipeline, the host and PostgreSQL are killed with kill -9 while they work. The order is that of first arrivals. A
message that was sent and not recorded arrives again, with the sequence number of its first arrival.
"""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest

from tests.support.chaos_installation import ChaosInstallation
from tests.support.http_receiver import HttpReceiver, Request, http_receiver
from tests.support.installation import Installation
from tests.support.waiting import wait_until

FILES, PER_FILE = 12, 25
COUNT = FILES * PER_FILE

APPLICATION = """
app.receive_port("OrdersIn").location(
    "drop", adapters.File("in", pattern="*.jsonl", order="name"), pipeline=pipelines.JsonLines()
)
app.send_port(
    "Ordered",
    adapters.Http("{url}"),
    filter=BTS.ReceivePortName == "OrdersIn",
    retry=Retry(count=1000, interval=0.1),
    ordered=True,
)
"""


@pytest.mark.sample("failing installation")
def test_first_arrivals_are_in_order_when_every_process_is_killed(home: Path) -> None:
    with http_receiver() as receiver, Installation(home) as installation:
        application = installation.write(APPLICATION.replace("{url}", receiver.url))
        up = installation.start("up", str(application), "--master", "local[2]")
        chaos = ChaosInstallation(installation, up)

        def drop(files: range) -> None:
            for file in files:
                numbers = range(file * PER_FILE, (file + 1) * PER_FILE)
                lines = "\n".join(json.dumps({"n": number}) for number in numbers)
                installation.drop_file(f"{file:04}.jsonl", lines.encode())

        drop(range(3))
        wait_until(lambda: receiver.accepted, what="the first order")
        with chaos.block_publishing():
            drop(range(3, 6))
            chaos.wait_for_publisher()
            chaos.kill_pipeline()
        wait_until(lambda: count_arrived(receiver) > 4 * PER_FILE, what="orders after the pipeline was killed")
        receiver.fail(5)
        drop(range(6, 9))
        wait_until(lambda: count_arrived(receiver) > 6 * PER_FILE, what="more orders")
        chaos.kill("host Main")
        drop(range(9, 12))
        wait_until(lambda: count_arrived(receiver) > 8 * PER_FILE, what="orders after the host was killed")
        chaos.end_postgres(signal.SIGQUIT)
        wait_until(lambda: count_arrived(receiver) == COUNT, what="all orders")
        wait_until(lambda: chaos.count("messages") == 0, what="an empty spool")
        installation.run("check")
        assert up.stop() == 0, up.output()
    assert list(dict.fromkeys(map(read_number, receiver.accepted))) == list(range(COUNT))
    keys = {request.headers["Postroom-Sequence-Number"]: read_number(request) for request in receiver.requests}
    assert [keys[key] for key in sorted(keys, key=int)] == list(range(COUNT)), "a number for each order, in order"


def count_arrived(receiver: HttpReceiver) -> int:
    return len(set(map(read_number, receiver.accepted)))


def read_number(request: Request) -> int:
    number = json.loads(request.body)["n"]
    assert isinstance(number, int)
    return number
