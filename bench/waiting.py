"""Direct lane: the publish of one message at a million instance subscriptions against that at ten.

    python -m bench.waiting

Each number has its own MessageBox. Every message is routed to one waiting instance and to the ports of its region. The
instance is chosen at random, so that its row is usually not in a cache of the processor.
"""

from __future__ import annotations

import random
import statistics
from collections.abc import Iterator
from contextlib import contextmanager

from bench.messagebox import ORDERS, REGIONS, MeasuredBox, Region, measured_box
from bench.ratios import Result, compute_ratio, measure_alternately, seconds
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.message import Message
from postroom.messagebox.connection import connect
from postroom.properties import Property

OrderNumber = Property("Orders.OrderNumber", str)
_MANY, _FEW = 1_000_000, 10
_PUBLISHES = 200
_ROUNDS = 7
#: Stores the rows of create_instance_subscription in one statement.
_WAIT = """
    INSERT INTO subscriptions (host_id, service_class, service_id, service_name, state, instance_id,
                               correlation_type_id, correlation_values, correlation_hash)
    SELECT %s, 'orchestrations', gen_random_uuid(), 'Approval', 'started', gen_random_uuid(), t.id, v.wanted,
           correlation_hash(t.id, v.wanted)
      FROM correlation_types t, generate_series(0, %s) n, LATERAL (SELECT ARRAY['order ' || n]) v (wanted)
"""


def measure() -> Result:
    """Return the median time of a publish with many over that with few."""
    with _open_publisher(_MANY) as many, _open_publisher(_FEW) as few:
        pairs = measure_alternately(many.publish, few.publish, rounds=_ROUNDS)
    ratio, spread = compute_ratio(pairs)
    milliseconds = [1000 * statistics.median(side) for side in zip(*pairs, strict=True)]
    return Result(
        name=f"direct lane: one message published, {_MANY:,} instance subscriptions waiting against {_FEW}, median",
        group="B",
        measured=ratio,
        bar=1.3,
        at_most=True,
        spread=spread,
        detail=f"{milliseconds[0]:.2f} ms against {milliseconds[1]:.2f} ms",
    )


@contextmanager
def _open_publisher(waiting: int) -> Iterator[_Publisher]:
    with measured_box(promote={**ORDERS, OrderNumber: "order"}) as box:
        box.one(
            "SELECT correlation_type(array_agg(id)) FROM properties WHERE key = %s",
            OrderNumber.key,
        )
        box.connection.execute(_WAIT, (box.host.host_id, waiting - 1))
        box.connection.execute("VACUUM (ANALYZE) subscriptions")
        with connect(box.url, user=box.host.role_name) as connection:
            yield _Publisher(box, DirectAgent(connection, box.host, RoutingTable()), waiting)


class _Publisher:
    def __init__(self, box: MeasuredBox, agent: DirectAgent, waiting: int) -> None:
        self._box = box
        self._agent = agent
        self._waiting = waiting
        self._rng = random.Random(7)

    def publish(self) -> float:
        """Return the median time of a publish. Raise an error unless every message is queued for an instance."""
        messages = [self._make_message() for _ in range(_PUBLISHES)]
        times = [seconds(lambda one=one: self._agent.publish([one])) for one in messages]  # type: ignore[misc]
        queued = self._box.one("SELECT count(*) FROM work_queue q JOIN subscriptions s USING (instance_id)")
        if queued != _PUBLISHES:
            raise RuntimeError(f"{queued} of {_PUBLISHES} messages were queued for a waiting instance.")
        self._box.empty()
        return statistics.median(times)

    def _make_message(self) -> Message:
        order = f"order {self._rng.randrange(self._waiting)}"
        return Message.of(b"x" * 1000, promoted={Region: f"R{self._rng.randrange(REGIONS)}", OrderNumber: order})


if __name__ == "__main__":
    import sys

    sys.stdout.write(f"{measure()}\n")
