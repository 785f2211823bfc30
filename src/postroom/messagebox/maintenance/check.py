"""Checks the invariants of a MessageBox and reports violations.

for violation in check(connection):
    print(violation.problem, violation.examples, violation.hint)
"""

from __future__ import annotations

from dataclasses import dataclass

from postroom.messagebox.connection import Connection
from postroom.messagebox.statements import statement

_EXAMPLES = 10


@dataclass(frozen=True, kw_only=True)
class Violation:
    """A violated invariant: the problem, the number of violations, some examples, and what to do."""

    invariant: str
    problem: str
    count: int
    examples: tuple[str, ...]
    hint: str


@dataclass(frozen=True, kw_only=True)
class _Invariant:
    """An invariant. ``name`` is the name of the statement in checks/ that finds its violations."""

    name: str
    problem: str
    hint: str


_LOST = "Postroom does not cause this. Find the program that writes to the database, and restore a backup if necessary."
_COUNT = "No message is lost, but the spool does not become empty. Run 'postroom check --repair'."
_REPAIR = "Run 'postroom check --repair' now, which counts the references in the queues again."

_INVARIANTS = (
    _Invariant(
        name="messages_without_reference",
        problem="Messages have references, but are in no queue. No job would delete them.",
        hint=_COUNT,
    ),
    _Invariant(
        name="messages_without_ref_count",
        problem="Messages have no reference count. No job would delete them.",
        hint=_COUNT,
    ),
    _Invariant(
        name="negative_ref_counts",
        problem="References were released more often than they were added. Content may be deleted too early.",
        hint=_REPAIR,
    ),
    _Invariant(
        name="wrong_message_ref_counts",
        problem="Reference counts of messages differ from the references in the queues.",
        hint=_REPAIR,
    ),
    _Invariant(
        name="wrong_part_ref_counts",
        problem="Reference counts of parts differ from the references of their messages in the queues.",
        hint=_REPAIR,
    ),
    _Invariant(
        name="references_without_message",
        problem="Queues refer to messages that are not in the spool.",
        hint=f"Terminate these instances. Their messages cannot be delivered. {_LOST}",
    ),
    _Invariant(name="parts_without_message", problem="Parts belong to no message.", hint=_COUNT),
    _Invariant(
        name="messages_without_part",
        problem="A part of messages is missing.",
        hint=f"Terminate their instances. The messages cannot be delivered. {_LOST}",
    ),
    _Invariant(
        name="incomplete_parts",
        problem="Parts have fewer or more bytes than their stored size.",
        hint=f"Terminate the instances of their messages. {_LOST}",
    ),
    _Invariant(name="fragments_without_part", problem="Fragments belong to no part.", hint=_COUNT),
    _Invariant(
        name="predicates_without_group",
        problem="Predicates belong to no subscription.",
        hint="They match no message. 'postroom check --repair' deletes them.",
    ),
    _Invariant(
        name="incomplete_groups",
        problem="Predicates of subscriptions are missing.",
        hint="Unenlist and enlist their ports, which creates their subscriptions again.",
    ),
    _Invariant(
        name="services_unlike_artifacts",
        problem="Services differ from the deployed artifacts in their name, their host or another setting.",
        hint=f"Apply their application again. {_LOST}",
    ),
    _Invariant(
        name="wrong_service_subscriptions",
        problem="The subscriptions of send ports, orchestrations or lookups do not match their states or groups.",
        hint="Unenlist and enlist them, which creates their subscriptions again.",
    ),
    _Invariant(
        name="transient_rows_left_behind",
        problem="Properties of a published batch were not deleted.",
        hint="They do no harm. 'postroom check --repair' deletes them.",
    ),
    _Invariant(
        name="claims_of_dead_instances",
        problem="Messages are claimed by dead host instances.",
        hint="A running host releases them within seconds. Start a host, or run 'postroom jobs run'.",
    ),
    _Invariant(
        name="paused_without_circuit",
        problem="Messages wait until a circuit breaker is closed, but it is not open.",
        hint=f"Suspend and resume these instances. {_LOST}",
    ),
    _Invariant(
        name="intake_without_location",
        problem="Files or interchanges were received for deleted receive locations and are not published.",
        hint="Declare the location again with the same name and apply. Its pipeline then continues.",
    ),
    _Invariant(
        name="incomplete_orchestrations",
        problem="Orchestration instances, their messages and their journals do not belong together.",
        hint=f"Terminate the instances that are incomplete. {_LOST}",
    ),
    _Invariant(
        name="subscriptions_without_orchestration",
        problem="Messages are routed to orchestration instances that do not exist.",
        hint=_LOST,
    ),
    _Invariant(
        name="wrong_lookups",
        problem="Lookups and their entries do not belong together.",
        hint=f"Apply their application again, and publish the missing entries. {_LOST}",
    ),
    _Invariant(
        name="duplicate_instances",
        problem="Service instances are in the queues more than once.",
        hint=_LOST,
    ),
)


def check(connection: Connection) -> list[Violation]:
    """Return all violations of the invariants.

    Everything is read in one snapshot, so hosts, publishers and jobs may run at the same time.
    """
    with connection.transaction():
        connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")
        return find_violations(connection)


def find_violations(connection: Connection) -> list[Violation]:
    """Do the same as ``check``, in the snapshot of the caller's transaction."""
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
        invariant=invariant.name, problem=invariant.problem, count=count, examples=tuple(examples), hint=invariant.hint
    )
