"""The metrics and the health of a process, over real sockets."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from postroom.errors import StateError
from postroom.monitoring import server as module
from postroom.monitoring.metrics import Metric
from postroom.monitoring.server import MonitoringServer, Target
from tests.support.waiting import PATIENCE


class Process:
    """A process whose problems a test sets."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.answers = threading.Event()
        self.answers.set()

    def collect_metrics(self) -> Iterator[Metric]:
        yield Metric("counter", "postroom_cats", "Cats.", {("Main", 'a "b"\\'): 3}, labels=("host", "name"))
        yield Metric("summary", "postroom_naps", "Naps.", {(): (2, 5.5)})

    def find_problems(self) -> list[str]:
        assert self.answers.wait(PATIENCE)
        return self.problems


@pytest.fixture
def monitoring() -> Iterator[MonitoringServer]:
    with MonitoringServer("127.0.0.1", 0) as server:
        yield server


def get(server: MonitoringServer, path: str, method: str = "GET", **headers: str) -> tuple[int, str, str]:
    connection = HTTPConnection("127.0.0.1", server.port, timeout=PATIENCE)
    connection.request(method, path, headers=headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, answer.headers["Content-Type"], text


def test_a_process_that_starts_is_alive_and_not_ready(monitoring: MonitoringServer) -> None:
    assert get(monitoring, "/livez")[0] == 200
    status, _, text = get(monitoring, "/readyz")
    assert status == 503
    assert json.loads(text) == {"status": "not ready", "problems": ["The process is starting."]}
    assert "process_cpu_seconds_total" in get(monitoring, "/metrics")[2]


def test_a_process_is_ready_while_it_has_no_problems(monitoring: MonitoringServer) -> None:
    monitoring.process = process = Process()
    assert get(monitoring, "/readyz")[0] == 200
    process.problems = ["No lock."]
    status, _, text = get(monitoring, "/readyz")
    assert (status, json.loads(text)["problems"]) == (503, ["No lock."])
    assert get(monitoring, "/livez")[0] == 200


def test_a_process_that_does_not_answer_is_not_ready(
    monitoring: MonitoringServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_ANSWER_SECONDS", 0.1)
    monitoring.process = process = Process()
    process.answers.clear()
    assert get(monitoring, "/readyz")[0] == 503
    assert get(monitoring, "/livez")[0] == 200
    process.answers.set()


def test_metrics_have_the_format_of_prometheus_or_openmetrics(monitoring: MonitoringServer) -> None:
    monitoring.process = Process()
    status, content_type, text = get(monitoring, "/metrics")
    assert status == 200
    assert content_type.startswith("text/plain; version=")
    assert 'postroom_cats_total{host="Main",name="a \\"b\\"\\\\"} 3.0\n' in text
    assert "# TYPE postroom_naps summary\npostroom_naps_count 2.0\npostroom_naps_sum 5.5\n" in text
    _, content_type, text = get(monitoring, "/metrics", Accept="application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text")
    assert text.endswith("# EOF\n")


def test_other_paths_and_methods_are_rejected(monitoring: MonitoringServer) -> None:
    assert get(monitoring, "/")[0] == 404
    assert get(monitoring, "/targets")[0] == 404
    assert "/targets" not in get(monitoring, "/")[2]
    assert get(monitoring, "/metrics", "POST")[0] == 405
    assert get(monitoring, "/livez", "HEAD") == (200, "application/json", "")
    monitoring.list_targets = lambda: [Target(targets=["127.0.0.1:1"], labels={"process": "host Main"})]
    assert json.loads(get(monitoring, "/targets")[2]) == [
        {"targets": ["127.0.0.1:1"], "labels": {"process": "host Main"}}
    ]
    assert "There are /metrics, /livez, /readyz and /targets." in get(monitoring, "/")[2]


def test_a_used_port_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as used, pytest.raises(StateError, match="cannot listen on") as raised:
        MonitoringServer("127.0.0.1", used.getsockname()[1])
    assert "--metrics-port" in str(raised.value)


def test_an_idle_server_uses_one_thread() -> None:
    before = set(threading.enumerate())
    with MonitoringServer("127.0.0.1", 0):
        [thread] = set(threading.enumerate()) - before
    assert not thread.is_alive()
