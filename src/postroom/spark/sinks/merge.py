"""The statement that merges staged rows into a table by their message's id: the same for every database.

It does what MERGE … WHEN NOT MATCHED THEN INSERT does, in words that all of them have; MERGE is spelt differently
almost everywhere, and MySQL has none.
"""

from __future__ import annotations

from collections.abc import Mapping

KEY = "message_id"
#: Which task staged a row, and which number its message has in the queue. Only staging tables have them.
TASK = "postroom_task"
SEQ = "postroom_seq"


def merge_statement(
    target: str, staging: str, columns: Mapping[str, str], *, key: str, task: str, seq: str, of: tuple[int, int] | None
) -> str:
    """``columns`` are those of the target by those of the staging table; ``key``, ``task`` and ``seq`` are names in the
    staging table; all are quoted as the database wants it. ``of`` are the first and the last number to merge.

    A task that was lost after its commit has staged its rows twice, under two numbers of tasks; a message that reached
    the port by two ways is there under two numbers of its own. The lowest counts.
    """
    before = f"e.{task} < s.{task} OR e.{task} = s.{task} AND e.{seq} < s.{seq}"
    wanted = [
        f"NOT EXISTS (SELECT 1 FROM {staging} e WHERE e.{key} = s.{key} AND ({before}))",
        f"NOT EXISTS (SELECT 1 FROM {target} t WHERE t.{columns[key]} = s.{key})",
    ]
    if of is not None:
        wanted.append(f"s.{seq} BETWEEN {of[0]:d} AND {of[1]:d}")
    return (
        f"INSERT INTO {target} ({', '.join(columns.values())}) "
        f"SELECT {', '.join(f's.{name}' for name in columns)} FROM {staging} s WHERE {' AND '.join(wanted)}"
    )
