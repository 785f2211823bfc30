"""Secrets are in no log and in no error, also if a server refuses and repeats them."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

import postroom
from postroom import adapters
from postroom.hosts import HostInstance
from postroom.message import Message
from postroom.monitoring.logs import JsonFormatter
from tests.integration.hosts.conftest import SETTINGS
from tests.support.box import Box, Region
from tests.support.outbox import add_polled_location, declare_receive
from tests.support.password_server import refuse_passwords
from tests.support.waiting import wait_until

SECRET = "correct-horse-battery-staple"


class _Refuse(BaseHTTPRequestHandler):
    """Answers with 401, and repeats the credentials."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(401, f"refused {self.headers['Authorization']}")
        self.end_headers()
        self.wfile.write(f"refused {self.headers['Authorization']}".encode())

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def run_refusing_server() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Refuse) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/orders"
        server.shutdown()
        thread.join()


@contextmanager
def capture_logs() -> Iterator[list[io.StringIO]]:
    """Yield what is logged meanwhile, from DEBUG on: as text and as JSON."""
    outputs = [io.StringIO(), io.StringIO()]
    handlers = [logging.StreamHandler(output) for output in outputs]
    handlers[1].setFormatter(JsonFormatter())
    root = logging.getLogger()
    level = root.level
    root.setLevel(logging.DEBUG)
    for handler in handlers:
        root.addHandler(handler)
    try:
        yield outputs
    finally:
        root.setLevel(level)
        for handler in handlers:
            root.removeHandler(handler)


def test_a_refused_secret_is_in_no_log_and_in_no_error(
    box: Box, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARTNER_PASSWORD", SECRET)
    password = postroom.secret(env="PARTNER_PASSWORD")
    with refuse_passwords() as (database, passwords), run_refusing_server() as web, capture_logs() as logs:
        options = {"password": password}
        add_polled_location(box, declare_receive(database, options=options))
        table = adapters.Postgres(database, "orders", mode="insert", options=options)
        box.add_port("Table", "exists(Region)", adapter=table.model_dump(mode="json"), retry_count=0)
        http = adapters.Http(web, headers={"Authorization": password})
        box.add_port("Web", "exists(Region)", adapter=http.model_dump(mode="json"), retry_count=0)
        with HostInstance(box.url, "Default", tmp_path, as_role=True, settings=SETTINGS) as instance:
            box.agent().publish([Message.of(b"{}", promoted={Region: "EU"})])
            wait_until(lambda: box.count("suspended") == 2, what="both refusals")
            wait_until(lambda: instance.find_problems(), what="the failing location")
            problems = instance.find_problems()
    assert set(passwords) == {SECRET}
    errors = [str(row) for row in (*box.suspended_rows(), *box.running_locations())]
    assert any("password authentication failed" in error for error in errors)
    assert any("401" in error for error in errors)
    for output in (*(log.getvalue() for log in logs), *errors, *problems):
        assert SECRET not in output
    assert all("rows" in log.getvalue() for log in logs), "the logs have the failure of the location"
