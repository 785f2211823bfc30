"""Replay saved journals in another process, with another hash seed: python -m tests.support.replayed_journals.

It reads journals as JSON from standard input, and prints what each replay has sent, or what it does differently.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence

from postroom.orchestrations.execution import Execution
from postroom.orchestrations.journal import Send, Turn
from postroom.orchestrations.saved_journal import SavedJournal
from tests.support.random_orchestrations import PROGRAM, WAITING_PROGRAM

_ORCHESTRATIONS = {one.name: one for one in (PROGRAM, WAITING_PROGRAM)}

#: What a replay has sent: the id and the body of each message. The difference, if it does not do what the journal has.
Replayed = list[list[str]] | str


def replay_elsewhere(journals: Sequence[SavedJournal]) -> list[Replayed]:
    """Replay journals in a new process."""
    stored = json.dumps([journal.to_json() for journal in journals])
    environment = {**os.environ, "PYTHONHASHSEED": str(random.randrange(1, 2**32))}
    command = [sys.executable, "-m", "tests.support.replayed_journals"]
    done = subprocess.run(command, input=stored, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    results: list[Replayed] = json.loads(done.stdout)
    return results


def _replay(journal: SavedJournal) -> Replayed:
    """Replay a journal, and compare everything that it has of each command."""
    execution = Execution(_ORCHESTRATIONS[journal.orchestration], journal.instance_id, journal.carried)
    sent: list[list[str]] = []
    for number, turn in enumerate(journal.read_turns(), 1):
        for recorded in turn.commands:
            if recorded.unroutable is not None:
                execution.unroutable[recorded.number] = recorded.unroutable
            if recorded.due is not None:
                execution.due_times[recorded.number] = recorded.due
        commands = execution.handle(turn.event)
        if execution.error is not None:
            return f"turn {number} fails: {execution.format_error()}"
        issued = Turn.of(turn.event, commands).commands
        if issued != turn.commands:
            return f"turn {number} of the journal has {turn.commands}, and the replay {issued}"
        sends = [command for command in commands if isinstance(command, Send) and command.unroutable is None]
        sent += [[str(send.message.message_id), send.message.data.decode()] for send in sends]
    execution.close()
    return sent


if __name__ == "__main__":
    json.dump([_replay(SavedJournal.from_json(stored)) for stored in json.load(sys.stdin)], sys.stdout)
