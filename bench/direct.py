"""Direct lane: the publish of one message against a bare transaction with the same inserts."""

from __future__ import annotations

import statistics
import uuid
from collections.abc import Sequence
from decimal import Decimal

from bench.messagebox import REGIONS, MeasuredBox, Priority, Region, Total, measured_box
from bench.ratios import Result, compute_ratio, measure_alternately, seconds
from postroom.agent.direct.direct_agent import DirectAgent
from postroom.agent.routing.table import RoutingTable
from postroom.message import Message
from postroom.messagebox.configuration.hosts import ServiceClass
from postroom.messagebox.connection import Connection, connect

_PUBLISHES = 200
_SERVICE_CLASS = ServiceClass.MESSAGING_IN_PROCESS


def measure() -> Result:
    """Return the median time of a publish over that of the bare transaction."""
    with measured_box() as box, connect(box.url, user=box.host.role_name) as connection:
        agent = DirectAgent(connection, box.host, RoutingTable())
        bare = _BareTransaction(box, connect(box.url))
        pairs = measure_alternately(lambda: _measure_publish(agent), bare.run)
        bare.connection.close()
    ratio, spread = compute_ratio(pairs)
    milliseconds = [1000 * statistics.median(side) for side in zip(*pairs, strict=True)]
    return Result(
        name="direct lane: one message published, 1,000 subscriptions, median, against a bare transaction",
        group="A",
        measured=ratio,
        bar=1.5,
        at_most=True,
        spread=spread,
        detail=f"{milliseconds[0]:.2f} ms against {milliseconds[1]:.2f} ms",
    )


def _make_messages() -> list[Message]:
    return [
        Message.of(b"x" * 1000, promoted={Region: f"R{number % REGIONS}", Total: Decimal(number), Priority: number % 9})
        for number in range(_PUBLISHES)
    ]


def _measure_publish(agent: DirectAgent) -> float:
    messages = _make_messages()
    return statistics.median(seconds(lambda one=message: agent.publish([one])) for message in messages)  # type: ignore[misc]


class _BareTransaction:
    """Inserts the same rows into the same tables, with prepared statements in a pipeline."""

    def __init__(self, box: MeasuredBox, connection: Connection) -> None:
        self.connection = connection
        self._host = box.host.host_id

    def run(self) -> float:
        messages = _make_messages()
        times = []
        for number, message in enumerate(messages):
            body = message.body
            assert body is not None
            spool = (message.message_id, [body.part_id], body.part_id, "body", message.context.to_json())
            part = (body.part_id, "body", "application/octet-stream", 1000, body.data)
            matches = 3 if number % REGIONS < 200 else 2
            queue = [
                (self._host, message.message_id, number, _SERVICE_CLASS, uuid.uuid4(), uuid.uuid4(), 5)
                for _ in range(matches)
            ]
            references = [(message.message_id, matches), (body.part_id, matches)]
            times.append(seconds(lambda: self._insert(spool, part, queue, references)))  # noqa: B023
        return statistics.median(times)

    def _insert(
        self,
        spool: tuple[object, ...],
        part: tuple[object, ...],
        queue: Sequence[tuple[object, ...]],
        references: Sequence[tuple[object, ...]],
    ) -> None:
        execute = self.connection.execute
        with self.connection.transaction(), self.connection.pipeline():
            execute(
                "INSERT INTO spool (message_id, part_ids, body_part_id, body_part_name, context)"
                " VALUES (%s, %s, %s, %s, %s::jsonb)",
                spool,
            )
            execute("INSERT INTO parts (part_id, name, content_type, size, body) VALUES (%s, %s, %s, %s, %b)", part)
            for row in queue:
                execute(
                    "INSERT INTO default_q (host_id, message_id, subscription_id, service_class, service_id,"
                    " instance_id, priority) VALUES (%s, %s, %s, %s, %s, %s, %s)",
                    row,
                )
            execute("INSERT INTO message_ref_count_log_1 VALUES (%s, %s)", references[0])
            execute("INSERT INTO part_ref_count_log_1 VALUES (%s, %s)", references[1])
