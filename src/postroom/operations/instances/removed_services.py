"""Warn before instances of removed send ports and receive locations are resumed."""

from __future__ import annotations

import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import replace
from shlex import quote

from postroom.errors import format_count
from postroom.messagebox.connection import Connection
from postroom.messagebox.storage.copy_rows import DELIVERIES, QueueTask
from postroom.operations.instances.listing import InstanceQuery, count_instances


def describe_removed_services(connection: Connection, query: InstanceQuery) -> Iterator[str]:
    """Yield a sentence for each port whose instances match the query, if the send port or a location of the receive
    port was removed. The host suspends these instances again."""
    removed: defaultdict[str, list[uuid.UUID]] = defaultdict(list)
    for service_id, kind in connection.execute("SELECT id, kind FROM removed_services"):
        removed[kind].append(service_id)
    for kind, services in removed.items():
        tasks = DELIVERIES if kind == "send port" else (QueueTask.RECEIVE,)
        counts: Counter[str] = Counter()
        for count in count_instances(connection, replace(query, services=services, tasks=tasks), "port"):
            counts[str(count.value)] += count.count
        for name, number in counts.items():
            what, remedy = f"The send port {name!r}", f"postroom instance reroute --all --port {quote(name)}"
            if kind != "send port":
                what, remedy = f"A location of the receive port {name!r}", "apply an application that has it first"
            instances = format_count(number, "instance")
            yield f"{what} was removed. The host will suspend {instances} again. Instead: {remedy}"
