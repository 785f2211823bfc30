"""Save the journal of an orchestration instance as a file, for ``postroom.testing.replay``.

The results of steps and the bodies of messages are in the file, because a replay needs them. The values of sensitive
properties are replaced by others of the same type.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from postroom.errors import StateError
from postroom.messagebox.configuration.properties import read_sensitive_keys
from postroom.messagebox.connection import Connection
from postroom.messagebox.orchestrations import read_stored_journal
from postroom.messagebox.storage.spool import get_message, load_message
from postroom.operations.redaction import replace_sensitive_values
from postroom.orchestrations.journal import Continuation
from postroom.orchestrations.recorded_values import from_recorded, message_from_json, message_to_json
from postroom.orchestrations.saved_journal import SavedJournal
from postroom.properties import dotted_name, split_key


def save_journal(connection: Connection, instance_id: uuid.UUID, file: Path) -> SavedJournal:
    """Write the journal of an instance to a new file, which only the user may read.

    Raise StateError if the instance has no journal, or if the file exists, and NotAllowed if the login may not read
    journals."""
    saved = _redact(connection, load_journal(connection, instance_id))
    content = json.dumps(saved.to_json(), indent=1, ensure_ascii=False) + "\n"
    try:
        descriptor = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as writer:
            writer.write(content)
    except FileExistsError:
        raise StateError(f"{file} already exists.", hint="Remove it, or choose another file.") from None
    except OSError as error:
        raise StateError(f"{file} cannot be written.", why=f"{error.strerror}.", hint="Choose another file.") from None
    return saved


def load_journal(connection: Connection, instance_id: uuid.UUID) -> SavedJournal:
    """Return the journal of an instance. The bodies of its messages are read on demand. Raise StateError if it has
    none, and NotAllowed if the login may not read journals."""
    journal = read_stored_journal(connection, instance_id)
    if journal is None:
        raise StateError(
            f"Instance {instance_id} has no journal.",
            why="Only an orchestration that has started, and has not ended, has one.",
            hint="See 'postroom instance list'.",
        )
    turns = journal.turns
    received = [uuid.UUID(turn["event"]["message"]) for turn in turns if "message" in turn["event"]]
    return SavedJournal(
        orchestration=journal.orchestration,
        version=journal.version,
        instance_id=instance_id,
        carried=Continuation(journal=journal.journals, state=from_recorded(journal.carried)),
        turns=turns,
        messages=[load_message(connection, get_message(connection, message_id)) for message_id in received],
    )


def _redact(connection: Connection, journal: SavedJournal) -> SavedJournal:
    sensitive = read_sensitive_keys(connection)
    entries = [message_from_json(entry) for entry in _list_entries(journal.turns)]
    keys = {prop.key for message in (*journal.messages, *entries) for prop in message.context}
    return replace(
        journal,
        turns=[_replace_entries(turn, sensitive) for turn in journal.turns],
        messages=[replace_sensitive_values(message, sensitive) for message in journal.messages],
        redacted=tuple(sorted(dotted_name(*split_key(key)) for key in keys.intersection(sensitive))),
    )


def _list_entries(turns: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """Yield the entries of lookups in a journal."""
    for turn in turns:
        yield from (command["entry"] for command in turn["commands"] if command.get("entry"))


def _replace_entries(turn: Mapping[str, Any], sensitive: Collection[str]) -> Mapping[str, Any]:
    """Return a turn without the sensitive values in the entries of lookups."""

    def replace_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
        return message_to_json(replace_sensitive_values(message_from_json(entry), sensitive))

    commands = [
        {**command, "entry": replace_entry(command["entry"])} if command.get("entry") else command
        for command in turn["commands"]
    ]
    return {**turn, "commands": commands}
