"""Send ports that write into one table: a message has one row in a table, so that a table has one port (ADR 0032)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from postroom.adapters import SparkTable
from postroom.application.definition import ApplicationDefinition, SendPortDefinition
from postroom.errors import Problem


def shared_table_problems(new: ApplicationDefinition, others: Iterable[ApplicationDefinition]) -> Iterator[Problem]:
    """Ports of an application that write into the table of another port, here or deployed: of a message that reaches
    both, the row of one would be taken for that of the other."""
    known = [pair for other in others if other.name != new.name for pair in _writing(other)]
    for port, table in _writing(new):
        for other, theirs in known:
            if _place(table) == _place(theirs):
                text = (
                    f"send port {port.name!r}: {other.name!r} writes into the same table {theirs.table!r}, which has "
                    "one row for each message: what reaches both ports would be written for one of them only. Use "
                    "one port with both filters and the maps of both, or a table for each."
                )
                yield Problem(text, port.place.file, port.place.line)
        known.append((port, table))


def _writing(application: ApplicationDefinition) -> Iterator[tuple[SendPortDefinition, SparkTable]]:
    for port in application.send_ports:
        if isinstance(port.adapter, SparkTable):
            yield port, port.adapter


def _place(table: SparkTable) -> tuple[str, str]:
    """Whoever logs in, it is the same table. What is spelt differently in another way is taken for another one."""
    if table.is_jdbc:
        return table.url.casefold(), table.table.casefold()
    return re.sub(r"^postgres(ql)?://([^/?#]*@)?", "", table.url), table.table.removeprefix("public.")
