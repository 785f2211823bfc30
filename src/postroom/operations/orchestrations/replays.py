"""Replay the journals of waiting instances against changed code, before the code is applied.

The replay calls no step and sends nothing. It is limited in time, so it takes a sample of the instances if there are
very many. A journal that cannot be replayed at all, with any code, is reported and prevents nothing.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from postroom.errors import is_environment_error
from postroom.message import FRAGMENT_SIZE, Bytes, Message, Part
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import list_replayable_instances
from postroom.operations.orchestrations.journals import load_journal
from postroom.orchestrations.definition import Orchestration
from postroom.orchestrations.driver import replay
from postroom.orchestrations.failures import JournalMismatch
from postroom.orchestrations.saved_journal import SavedJournal
from postroom.processes.time_limit import TimedCall, TimedOut, call_each_with_timeout

#: How many instances of an orchestration are replayed, and how long the replay of one may take, in seconds.
MAX_INSTANCES, _REPLAY_SECONDS = 1_000, 5.0
#: How long all replays of a deployment may take, in seconds.
MAX_SECONDS = 10.0


@dataclass(frozen=True, kw_only=True)
class IncompatibleInstance:
    """An instance whose journal does not fit the changed code."""

    instance_id: uuid.UUID
    orchestration: str
    version: int
    turn: int | None
    """The number of the first turn that differs."""
    difference: str


@dataclass(frozen=True, kw_only=True)
class ReplayedJournals:
    """The replays of one orchestration. ``instances`` is the number of its instances that have a journal."""

    instances: int
    replayed: int
    incompatible: Sequence[IncompatibleInstance] = ()
    broken: Sequence[tuple[uuid.UUID, str]] = ()
    """The instances whose journals could not be replayed, each with the reason."""


def replay_waiting_instances(
    connection: Connection, service_id: uuid.UUID, code: Orchestration, *, deadline: float
) -> ReplayedJournals:
    """Replay the journals of the instances of an orchestration, until ``deadline`` (of ``time.monotonic``)."""
    ids, instances = list_replayable_instances(connection, service_id, limit=MAX_INSTANCES)
    incompatible: list[IncompatibleInstance] = []
    broken: list[tuple[uuid.UUID, str]] = []
    replayed = 0
    for instance_id in ids:
        if time.monotonic() >= deadline:
            break
        replayed += 1
        error = _replay_instance(connection, instance_id, code)
        if isinstance(error, JournalMismatch):
            incompatible.append(
                IncompatibleInstance(
                    instance_id=instance_id,
                    orchestration=code.name,
                    version=code.version,
                    turn=error.turn,
                    difference=error.why,
                )
            )
        elif isinstance(error, TimedOut):
            broken.append((instance_id, f"Its replay did not end within {_REPLAY_SECONDS:g} seconds."))
        elif error is not None:
            broken.append((instance_id, f"{type(error).__name__}: {error}"))
    return ReplayedJournals(instances=instances, replayed=replayed, incompatible=incompatible, broken=broken)


def _replay_instance(connection: Connection, instance_id: uuid.UUID, code: Orchestration) -> BaseException | None:
    """Replay one journal in a thread of its own. Return the error, if any."""
    try:
        journal = load_journal(connection, instance_id)
        journal = replace(journal, messages=list(map(_read_small_parts, journal.messages)))
    except Exception as error:
        if is_environment_error(error):
            raise
        return error
    [result] = call_each_with_timeout([TimedCall(seconds=_REPLAY_SECONDS, function=partial(_replay, journal, code))])
    return result if isinstance(result, BaseException) else None


def _replay(journal: SavedJournal, code: Orchestration) -> None:
    replay(code, journal.instance_id, journal.read_turns(), journal.carried).close()


def _read_small_parts(message: Message) -> Message:
    """Return the message with its small parts in memory, so that the code need not use the connection."""
    return replace(message, parts=tuple(map(_read_small_part, message.parts)))


def _read_small_part(part: Part) -> Part:
    return replace(part, body=Bytes(part.data)) if part.body.size <= FRAGMENT_SIZE else part
