"""The caching service: applies messages to lookups.

Every message is applied in the transaction that completes it. The number of a message in the queue decides which of two
is newer, so it does not matter in which order host instances apply them, or whether one is applied twice.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial

from postroom.errors import BadValue, PostroomError, ReadInterrupted, is_environment_error
from postroom.hosts.dequeue.processing import Disposition, Limits, Outcome, ThreadConnections
from postroom.message import Context
from postroom.messagebox.configuration.hosts import Host
from postroom.messagebox.configuration.services import read_removed_services
from postroom.messagebox.connection import Connection
from postroom.messagebox.lookups import DeployedLookup, LookupMessage, apply_to_lookup, read_lookups
from postroom.messagebox.queues import ClaimedMessage, Suspension
from postroom.messagebox.storage.claimed_messages import build_message
from postroom.messagebox.storage.stored_values import value_key
from postroom.processes.backoff import retry_while_unavailable
from postroom.properties import dotted_name, split_key
from postroom.values import type_of

#: The number of messages of one lookup that are applied together.
BATCH_SIZE = 100
#: The largest body of an entry. Entries are kept in the memory of every process that reads them.
MAX_ENTRY_SIZE = 1024 * 1024

_HINT = "Terminate the instance, and publish a corrected message."


class CachingService:
    """The service of the service class caching."""

    def __init__(self, host: Host) -> None:
        self._host = host.name
        self._lookups: Mapping[bytes, DeployedLookup] = {}
        self._version = -1

    def prepare(self, connection: Connection, claimed: Sequence[ClaimedMessage]) -> None:
        version = claimed[0].routing_version
        if version != self._version:
            self._lookups = {lookup.service_id.bytes: lookup for lookup in read_lookups(connection)}
            self._version = version

    def get_limits(self, claimed: ClaimedMessage) -> Limits:
        return Limits(batch=BATCH_SIZE)

    def handle(self, batch: Sequence[ClaimedMessage], connections: ThreadConnections) -> list[Outcome]:
        lookup = self._lookups.get(batch[0].service or b"")
        if lookup is None:
            return [self._suspend_for_removed_lookup(claimed, connections) for claimed in batch]
        outcomes: dict[int, Outcome] = {}
        entries: defaultdict[uuid.UUID, list[LookupMessage]] = defaultdict(list)
        for claimed in batch:
            try:
                key, is_deletion = _read_entry(lookup, claimed, connections)
            except ReadInterrupted:
                outcomes[claimed.seq] = Disposition.RELEASE
            except Exception as error:
                if is_environment_error(error):
                    raise
                outcomes[claimed.seq] = _suspend(error)
            else:
                entries[claimed.claim_id].append(LookupMessage(claimed.seq, key, is_deletion))
        # The messages of a batch may have several claims.
        for claim_id, messages in entries.items():
            apply = partial(self._apply, connections, lookup, claim_id, messages)
            applied = retry_while_unavailable(apply)
            for seq, _, _ in messages:
                if applied is None:
                    outcomes[seq] = self._suspend_for_removed_lookup(batch[0], connections)
                else:
                    outcomes[seq] = Disposition.FINISHED if seq in applied else Disposition.DISCARD
        return [outcomes[claimed.seq] for claimed in batch]

    def _apply(
        self,
        connections: ThreadConnections,
        lookup: DeployedLookup,
        claim_id: uuid.UUID,
        messages: Sequence[LookupMessage],
    ) -> set[int] | None:
        return apply_to_lookup(connections.get_writing(), self._host, lookup.service_id, claim_id, messages)

    def close(self) -> None:
        pass

    def _suspend_for_removed_lookup(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Suspension:
        name = f"with the id {claimed.service_id}"
        with suppress(PostroomError):
            services = read_removed_services(connections.get_writing())
            name = next((repr(service.name) for service in services if service.id == claimed.service_id), name)
        return Suspension(
            code="PORT_GONE",
            description=f"The lookup {name} was removed after the message was queued for it.\n"
            "Terminate the instance, or apply an application that has the lookup again and resume it.",
        )


def _read_entry(lookup: DeployedLookup, claimed: ClaimedMessage, connections: ThreadConnections) -> tuple[str, bool]:
    """Return the key of a message, and whether it deletes the entry. Raise BadValue if it cannot be an entry."""
    message = build_message(claimed, connections)
    size = 0 if message.body is None else message.body.body.size
    if message.context.predicates:
        raise BadValue(
            f"The lookup {lookup.name!r} cannot keep the message: it has message predicates.",
            why="They restrict which hosts may receive the message, but every host may read a lookup.",
            hint=_HINT,
        )
    if size > MAX_ENTRY_SIZE:
        raise BadValue(
            f"The lookup {lookup.name!r} cannot keep the message: its body has {size:,} bytes.",
            why=f"An entry of a lookup has at most {MAX_ENTRY_SIZE:,} bytes.",
            hint=_HINT,
        )
    return _read_key(lookup, message.context), size == 0


def _read_key(lookup: DeployedLookup, context: Context) -> str:
    name = dotted_name(*split_key(lookup.key_property))
    value = context.promoted.get(lookup.key_property)
    if value is None:
        is_written = lookup.key_property in context.written
        raise BadValue(
            f"The message has no key for the lookup {lookup.name!r}: "
            + (f"{name} is written in it, and not promoted." if is_written else f"it has no {name}."),
            hint=f"Let its publisher or its receive pipeline promote {name}. {_HINT}",
        )
    if type_of(value) is not lookup.key_type:
        expected, found = lookup.key_type.python_type.__name__, type_of(value).python_type.__name__
        raise BadValue(
            f"The message has no key for the lookup {lookup.name!r}: the type of {name} is {found}, not {expected}.",
            hint=_HINT,
        )
    return value_key(value)


def _suspend(error: Exception) -> Suspension:
    if isinstance(error, PostroomError) and not isinstance(error, BadValue):
        return Suspension(code=error.code, description=str(error))
    return Suspension(code="LOOKUP", description=str(error) or type(error).__name__)
