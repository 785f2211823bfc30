"""A table of another application, in the database of the MessageBox of a test, and the adapter that polls it."""

from __future__ import annotations

from typing import Any

import psycopg

from postroom import adapters, pipelines
from postroom.ports.receive_locations import ReceiveLocation, read_receive_locations
from tests.support.box import PROMOTE, Box

POLL = "SELECT id, body FROM public.outbox ORDER BY id LIMIT %(limit)s FOR UPDATE SKIP LOCKED"
AFTER = "DELETE FROM public.outbox WHERE id = %(id)s"


def declare_receive(url: str, **arguments: Any) -> adapters.PostgresReceive:
    """Return an adapter that polls the outbox and deletes its rows."""
    return adapters.PostgresReceive(url, **{"poll": POLL, "key": ["id"], "after": AFTER, "body": "body", **arguments})


class Outbox:
    """The table ``public.outbox``."""

    def __init__(self, url: str) -> None:
        self.connection = psycopg.connect(url, autocommit=True)
        self.connection.execute(
            "CREATE TABLE public.outbox (id bigserial PRIMARY KEY, body bytea); GRANT ALL ON public.outbox TO public"
        )
        self.definition: adapters.ReceiveDefinition = declare_receive(url)

    def put(self, content: bytes) -> None:
        self.connection.execute("INSERT INTO public.outbox (body) VALUES (%b)", (content,))

    def count(self) -> int:
        row = self.connection.execute("SELECT count(*) FROM public.outbox").fetchone()
        assert row is not None
        return int(row[0])

    def break_down(self) -> None:
        self.connection.execute("ALTER TABLE public.outbox RENAME TO broken_down")

    def repair(self) -> None:
        self.connection.execute("ALTER TABLE public.broken_down RENAME TO outbox")


def add_polled_location(
    box: Box, adapter: adapters.ReceiveDefinition, *, name: str = "rows", kind: str | None = None
) -> ReceiveLocation:
    """Add a receive location for orders in JSON. ``kind`` replaces the kind of the adapter."""
    box.add_location(pipelines.Json(promote=PROMOTE), port=f"{name}In", name=name)
    stored = adapter.model_dump(mode="json") | ({} if kind is None else {"kind": kind})
    box.set_locations(name, adapter=stored, uri="postgresql://erp")
    return next(location for location in read_receive_locations(box.connection) if location.name == name)
