"""What a change of instances would do: what operators see before they confirm it."""

from __future__ import annotations

import shlex
import uuid
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from postroom.errors import format_count
from postroom.messagebox.configuration.services import read_removed_services
from postroom.messagebox.connection import Connection
from postroom.messagebox.instance_operations import OperationKind
from postroom.messagebox.instances import InstanceQuery, InstanceState, count_instances, count_states, list_instances
from postroom.messagebox.queues import DELIVERIES, QueueTask


@dataclass(frozen=True, kw_only=True)
class Preview:
    """The number of instances that a change can change, by state, the number of their messages, and warnings."""

    instances: Mapping[InstanceState, int]
    messages: int
    warnings: tuple[str, ...] = ()


def preview_change(
    connection: Connection, kind: OperationKind, query: InstanceQuery, *, all_messages: bool = False
) -> Preview:
    """Return what a change of the instances that match would do. ``all_messages`` as in ``change_instances``."""
    instances = count_states(connection, query)
    messages = sum(instances.values())
    warnings: list[str] = []
    if kind == "resume":
        warnings += _describe_removed_services(connection, query)
    if kind == "terminate":
        for port in list_instances(connection, replace(query, tasks=[QueueTask.DELIVER_IN_ORDER])):
            if all_messages:
                messages += port.messages - 1
                warnings.append(f"All {format_count(port.messages, 'message')} of {port.display_name} will be deleted.")
            elif port.messages > 1:
                warnings.append(
                    f"Only the first message of {port.display_name} will be deleted."
                    f" {format_count(port.messages - 1, 'message').capitalize()} after it will be sent."
                    " To delete them too, add --all-messages."
                )
        if query.ids is not None:  # without ids there may be a million
            joined = list_instances(connection, replace(query, tasks=[QueueTask.JOIN_INSTANCE]))
            messages += sum(instance.messages - 1 for instance in joined)
    return Preview(instances=instances, messages=messages, warnings=tuple(warnings))


def format_counts(counts: Mapping[InstanceState, int]) -> str:
    """Return a number of instances with their states: ``500 instances (498 suspended, 2 ready to run)``."""
    total = sum(counts.values())
    states = ", ".join(f"{count:,} {state}" for state in InstanceState if (count := counts.get(state)))
    return f"{total:,} {'instance' if total == 1 else 'instances'}" + (f" ({states})" if total else "")


def _describe_removed_services(connection: Connection, query: InstanceQuery) -> Iterator[str]:
    """Yield a sentence for each port whose instances match the query, if the send port or a location of the receive
    port was removed. The host suspends these instances again."""
    removed: defaultdict[str, list[uuid.UUID]] = defaultdict(list)
    for service in read_removed_services(connection):
        removed[service.kind].append(service.id)
    for kind, services in removed.items():
        tasks = DELIVERIES if kind == "send port" else (QueueTask.RECEIVE,)
        counts: Counter[str] = Counter()
        for count in count_instances(connection, replace(query, services=services, tasks=tasks), "port"):
            counts[str(count.value)] += count.count
        for name, number in counts.items():
            what = f"The send port {name!r}"
            remedy = f"postroom instance reroute --all --port {shlex.quote(name)} --removed"
            if kind != "send port":
                what, remedy = f"A location of the receive port {name!r}", "apply an application that has it first"
            instances = format_count(number, "instance")
            yield f"{what} was removed. The host will suspend {instances} again. Instead: {remedy}"
