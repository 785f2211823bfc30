"""Repairs a MessageBox: rebuilds what ``check`` verifies and what follows from other tables.

for repair in repair_messagebox(connection):
    print(repair.what, repair.count, repair.examples)

Reference counts are rebuilt from the queues. Rows that no statement reads any more are deleted. Everything else that
``check`` reports needs a decision and is not changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from postroom.errors import LockTimeout, Unavailable
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.maintenance.jobs import lock_jobs

_EXAMPLES = 10
#: Writers of the logs wait behind a repair that waits for its locks, so it waits for a short time, several times.
_LOCK_TIMEOUT = "2s"
_MAX_ATTEMPTS = 10


@dataclass(frozen=True, kw_only=True)
class Repair:
    """What was repaired: the problem, the number of rows, and some examples."""

    what: str
    problem: str
    count: int
    examples: tuple[str, ...] = ()


def repair_messagebox(
    connection: Connection,
    *,
    wait: timedelta = timedelta(seconds=60),
    record: Callable[[Connection, list[Repair]], None] = lambda _connection, _repairs: None,
) -> list[Repair]:
    """Repair the MessageBox in one transaction, which also calls ``record``. Return what was changed.

    Hosts and publishers may run at the same time: they wait until the transaction ends. Jobs are locked. A message that
    is in a queue is never deleted.
    """

    def work(connection: Connection) -> list[Repair]:
        repairs = _repair(connection)
        record(connection, repairs)
        return repairs

    with lock_jobs(connection, wait):
        for _ in range(_MAX_ATTEMPTS):
            try:
                return transaction(connection, work)
            except LockTimeout:
                continue
    raise Unavailable(
        "The reference counts could not be locked.",
        why="A transaction has been writing to them for a long time.",
        hint="Try again later. pg_stat_activity shows the transaction.",
    )


def _repair(connection: Connection) -> list[Repair]:
    connection.execute("SELECT set_config('lock_timeout', %s, true)", (_LOCK_TIMEOUT,))
    counts = connection.execute(
        "SELECT kind, problem, corrected, examples FROM repair_ref_counts(%s)", (_EXAMPLES,)
    ).fetchall()
    unused = connection.execute("SELECT table_name, deleted FROM delete_unused_rows() WHERE deleted > 0").fetchall()
    return [
        *(
            Repair(what=f"{kind} reference counts", problem=problem, count=corrected, examples=tuple(examples))
            for kind, problem, corrected, examples in counts
        ),
        *(Repair(what=f"rows of {table}", problem="unused", count=deleted) for table, deleted in unused),
    ]
