"""Verifies what must always hold in a MessageBox, and names what violates it.

for violation in check(connection):
    print(violation.says, violation.examples, violation.hint)
"""

from __future__ import annotations

from dataclasses import dataclass

from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement

_EXAMPLES = 10


@dataclass(frozen=True, kw_only=True)
class Violation:
    """An invariant that does not hold: what is wrong, how often, some of what is affected, and what to do."""

    invariant: str
    says: str
    count: int
    examples: tuple[str, ...]
    hint: str


@dataclass(frozen=True, kw_only=True)
class _Invariant:
    """``name`` is that of the statement in checks/ that finds what violates it."""

    name: str
    says: str
    hint: str


_LOST = (
    "Nothing in Postroom does this: look for what else writes to the database, and restore from a backup if need be."
)
_COUNT = "Nobody loses a message by it, but the spool does not empty. Report it with the examples."

_INVARIANTS = (
    _Invariant(
        name="messages_without_reference",
        says="Messages are counted as referred to, but no queue refers to them; they would stay for ever.",
        hint=_COUNT,
    ),
    _Invariant(
        name="messages_without_ref_count",
        says="Messages have no reference count; no job would delete them.",
        hint=_COUNT,
    ),
    _Invariant(
        name="negative_ref_counts",
        says="References were released more often than they were made; content may be deleted too early.",
        hint=_LOST,
    ),
    _Invariant(
        name="wrong_message_ref_counts",
        says="Messages are counted otherwise than the queues refer to them.",
        hint=_LOST,
    ),
    _Invariant(
        name="wrong_part_ref_counts",
        says="Parts are counted otherwise than the queues refer to their messages.",
        hint=_LOST,
    ),
    _Invariant(
        name="references_without_message",
        says="Queues refer to messages that are not in the spool.",
        hint=f"Terminate these instances; they cannot be delivered. {_LOST}",
    ),
    _Invariant(name="parts_without_message", says="Parts belong to no message.", hint=_COUNT),
    _Invariant(
        name="messages_without_part",
        says="Messages lack a part.",
        hint=f"Terminate their instances; they cannot be delivered. {_LOST}",
    ),
    _Invariant(
        name="incomplete_parts",
        says="Parts have fewer or more bytes than their size says.",
        hint=f"Terminate the instances of their messages. {_LOST}",
    ),
    _Invariant(name="fragments_without_part", says="Fragments belong to no part.", hint=_COUNT),
    _Invariant(
        name="predicates_without_group",
        says="Predicates belong to no subscription.",
        hint="They match nobody; delete them by their group id.",
    ),
    _Invariant(
        name="incomplete_groups",
        says="Subscriptions do not have the predicates that they were made with.",
        hint="Unenlist and enlist their ports, which makes their subscriptions anew.",
    ),
    _Invariant(
        name="wrong_port_subscriptions",
        says="Send ports do not have the subscriptions that their states, and those of their groups, say.",
        hint="Unenlist and enlist them, which makes their subscriptions anew.",
    ),
    _Invariant(
        name="transient_rows_left_behind",
        says="Properties of a batch were left behind when it was published.",
        hint="They are in nobody's way; delete them by their batch id, and report it.",
    ),
    _Invariant(
        name="claims_of_dead_instances",
        says="Messages are claimed by host instances that do not live any more.",
        hint="A running host gives them back within seconds: start one, or run 'postroom jobs run'.",
    ),
    _Invariant(
        name="intake_without_location",
        says="Files or interchanges were taken in for receive locations that are gone; nobody publishes them.",
        hint="Declare the location again under the name that it had, and apply: its pipeline goes on with them.",
    ),
    _Invariant(
        name="duplicate_instances",
        says="Service instances stand in the queues more than once.",
        hint=_LOST,
    ),
)


def check(connection: Connection) -> list[Violation]:
    """Return every invariant that does not hold; an empty list means that all is well.

    Everything is read in one snapshot, in which each transaction of others has happened as a whole or not at all. So
    hosts, publishers and jobs may go on meanwhile.
    """
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return find_violations(connection)


def find_violations(connection: Connection) -> list[Violation]:
    """As ``check``, in the snapshot of the caller's transaction."""
    found = (_find(connection, invariant) for invariant in _INVARIANTS)
    return [violation for violation in found if violation is not None]


def _find(connection: Connection, invariant: _Invariant) -> Violation | None:
    what = statement(f"checks/{invariant.name}")
    row = connection.execute(
        f"SELECT count(*), (array_agg(what ORDER BY what))[1:%s] FROM ({what}) v (what)", (_EXAMPLES,)
    ).fetchone()
    assert row is not None
    count, examples = row
    if count == 0:
        return None
    return Violation(
        invariant=invariant.name, says=invariant.says, count=count, examples=tuple(examples), hint=invariant.hint
    )
