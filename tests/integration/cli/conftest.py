from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from postroom.cli.main import main


@dataclass(frozen=True)
class CommandResult:
    """The result of a command line."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Run = Callable[..., CommandResult]

APP = """
from decimal import Decimal
from postroom import BTS, Application, Property, adapters, orchestrations, pipelines

Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
Priority = Property("Orders.Priority", int)

app = Application("orders")
app.receive_port("OrdersIn").location(
    "drop",
    adapters.File("in", pattern="*.json"),
    pipeline=pipelines.Json(promote={Region: "region", Total: "total", Priority: "priority"}),
)
app.send_port("Europe", adapters.File("out/europe"), filter=Region == "EU")
app.send_port("BigOrders", adapters.File("out/big"), filter=(Total >= 10_000) & (Region != "TEST") | (Priority == 1))
app.send_port("Audit", adapters.File("out/audit"), filter=BTS.ReceivePortName == "OrdersIn")
"""


@pytest.fixture
def run(database: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run `postroom` with the test's own MessageBox, in this process."""

    def run(*arguments: object, stdin: bytes = b"") -> CommandResult:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        code = main(["--database", database, *map(str, arguments)])
        captured = capsys.readouterr()
        return CommandResult(int(code), captured.out, captured.err)

    return run


@pytest.fixture
def app(tmp_path: Path) -> Path:
    """Return the file of an application that is not applied."""
    path = tmp_path / "app.py"
    path.write_text(APP)
    return path


@pytest.fixture
def applied(run: Run, app: Path) -> Run:
    """Run `postroom` with a MessageBox that has the application."""
    assert run("apply", app).code == 0
    return run
