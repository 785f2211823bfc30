from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.databases import Databases
from tests.support.folders import open_folder
from tests.support.house import House


@pytest.fixture
def house(tmp_path: Path, database: str) -> Iterator[House]:
    """A fresh home folder and a fresh MessageBox. Afterwards the MessageBox has to be in order (ACC-82)."""
    with House(tmp_path, database) as opened:
        yield opened
        opened.run("check")


@pytest.fixture(scope="session")
def web_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@pytest.fixture(scope="session")
def receiving_house(databases: Databases, web_port: int) -> Iterator[House]:
    """A house whose pipeline runs, with locations of every kind. Hosts run only while a test has started them; what
    comes from folders leaves through another host than what comes from the web."""
    with open_folder() as home, databases.clone() as url, House(home, url) as opened:
        opened.apply(
            f"""
            app.host("Sender")
            app.receive_port("RP").location("any", adapters.File("any", pattern="*"), pipeline=pipelines.PassThrough())
            app.send_port("A", adapters.File("out/a"), filter=BTS.ReceivePortName == "RP", host="Sender")
            app.send_port("B", adapters.File("out/b"), filter=BTS.ReceivePortName == "RP", host="Sender")
            app.send_port("C", adapters.File("out/c"), filter=BTS.ReceivePortName == "Other", host="Sender")
            orders = pipelines.Json(promote=PROMOTE)
            app.receive_port("In").location("drop", adapters.File("in", pattern="*.json"), pipeline=orders)
            app.send_port("P", adapters.File("out/p"), filter=Region == "EU", state="bound", host="Sender")
            app.receive_port("Web").location("web", adapters.HttpReceive("/orders", port={web_port}), pipeline=orders)
            app.send_port("FromWeb", adapters.File("out/web"), filter=Region == "US")
            """
        )
        opened.start_pipeline()
        yield opened
        opened.run("check")
