"""A host process shows its metrics and its health on this machine only, and logs JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.client import HTTPConnection, HTTPException

import psutil
import pytest

from tests.support.installation import Installation
from tests.support.reserved_port import reserve_port
from tests.support.waiting import PATIENCE, wait_until


def get(port: int, path: str) -> tuple[int, str]:
    """Return status and body, or 0 while nobody listens."""
    connection = HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()
    except (OSError, HTTPException):
        return 0, ""
    finally:
        connection.close()


@pytest.fixture
def port() -> Iterator[int]:
    with reserve_port() as reserved:
        yield reserved


def test_the_process_shows_its_metrics_and_its_health(installation: Installation, port: int) -> None:
    installation.apply('app.send_port("Out", adapters.File("out"), filter=Region == "EU")\n')
    host = installation.start("host", "run", "Main", "--metrics-port", str(port), "--log-format", "json")
    wait_until(lambda: get(port, "/readyz")[0] == 200, what="a ready host")
    assert get(port, "/livez")[0] == 200
    text = get(port, "/metrics")[1]
    assert 'postroom_messages_in_progress{host="Main"} 0.0\n' in text
    assert "process_open_fds" in text
    sockets = psutil.Process(host.pid).net_connections(kind="inet")
    assert [one.laddr for one in sockets if one.status == psutil.CONN_LISTEN] == [("127.0.0.1", port)]
    assert host.stop() == 0
    assert get(port, "/livez")[0] == 0
    entries = [json.loads(line) for line in host.output().splitlines()]
    assert all(entry["time"].endswith("Z") and entry["level"] == "INFO" for entry in entries)
    assert "Host Main is running. Press Ctrl-C to stop it." in [entry["message"] for entry in entries]
