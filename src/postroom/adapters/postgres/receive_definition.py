"""The definition of the PostgreSQL adapter for receive locations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar, Literal

from pydantic import Field

from postroom.adapters.contract import ReceiveAdapter, ReceiveDefinition
from postroom.adapters.postgres_server import Names, find_url_problems, format_address
from postroom.secrets.references import Secret

_LIMIT = "%(limit)s"
_PARAMETER = re.compile(r"%\(([^)]+)\)s")
_CLAIM = re.compile(r"\bfor\s+(no\s+key\s+)?update\b", re.IGNORECASE)
_DELETE = re.compile(r"\s*delete\b", re.IGNORECASE)
_MAX_BATCH = 10_000
_MAX_INTERVAL = 3600.0


class PostgresReceive(ReceiveDefinition):
    """Rows of a PostgreSQL database: ``adapters.PostgresReceive("postgresql://app@db/erp",
    poll="SELECT * FROM outbox ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED", key=["id"],
    after="DELETE FROM outbox WHERE id = %(id)s")``.

    ``poll`` is the claim query: it selects and locks up to ``limit`` rows. Each row is an interchange: a JSON object of
    all columns, or the content of the column ``body``. ``after`` is executed for each row that was published or
    suspended, with the columns of the row as parameters. It removes the row from the result of ``poll``.

    ``key`` names the columns that identify a row. A row that comes again with the same values after a crash is not
    published again. If ``after`` keeps the row, so that it can be sent again later, the key also needs a column that
    changes with every update: ``xmin::text AS version``.

    ``options`` are settings of libpq. The password is a ``postroom.secret(...)``.
    """

    transport_type: ClassVar[str] = "POSTGRESQL"
    intake_unit: ClassVar[str] = "row"

    kind: Literal["postgres_receive"] = "postgres_receive"
    url: str = Field(kw_only=False)
    poll: str
    key: Names
    after: str
    body: str | None = None
    batch: int = 100
    interval: float = 1.0
    options: Mapping[str, str | Secret] = Field(default_factory=dict)

    @property
    def polling_interval(self) -> float:
        return self.interval

    @property
    def poll_limit(self) -> int:
        return self.batch

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """The columns that ``poll`` must return."""
        body = () if self.body is None else (self.body,)
        return tuple(dict.fromkeys((*self.key, *body, *_PARAMETER.findall(self.after))))

    def problems(self) -> list[str]:
        found = find_url_problems(self.url, self.options)
        if _LIMIT not in self.poll:
            found.append(f"poll has no limit; add LIMIT {_LIMIT} to the query.")
        if others := sorted({*_PARAMETER.findall(self.poll)} - {"limit"}):
            found.append(f"poll has the parameter {others[0]!r}; the only one is {_LIMIT}.")
        if not _CLAIM.search(self.poll):
            found.append("poll does not lock its rows; add FOR UPDATE SKIP LOCKED to the query.")
        if not self.key or not all(self.key):
            found.append("key is empty; name the columns that identify a row.")
        if not _PARAMETER.search(self.after):
            found.append("after does not name its row; write a condition such as WHERE id = %(id)s.")
        elif not _DELETE.match(self.after) and len(self.key) == 1 and "xmin" not in self.poll.lower():
            found.append(
                f"after keeps the row, so it can come again with the same {self.key[0]!r}, and would be taken for a"
                " repeat; select xmin::text AS version in poll, and add 'version' to key."
            )
        if not 1 <= self.batch <= _MAX_BATCH:
            found.append(f"batch is {self.batch}, but must be between 1 and {_MAX_BATCH}.")
        if not 0 < self.interval <= _MAX_INTERVAL:
            found.append(f"interval is {self.interval:g} seconds, but must be above 0 and at most {_MAX_INTERVAL:g}.")
        return found

    def address(self, home: Path) -> str:
        return format_address(self.url)

    def make_receiver(self, home: Path) -> ReceiveAdapter:
        # Import the dependencies of this adapter only when it is used.
        from postroom.adapters.postgres.receive import PostgresReceiver

        return PostgresReceiver(self)
