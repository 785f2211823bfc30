"""The demo: a few hundred orders on their way to every subscriber, and a check that each arrived where it should.

What ought to happen is computed here by hand, without the engine: the filters of examples/orders/app.py, spelt out.
"""

from __future__ import annotations

import json
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from postroom.errors import StateError
from postroom.messagebox.connection import Connection, connect
from postroom.operations.ports import send_ports
from postroom.operations.running.supervisor import Supervisor

_WITH_AUDIT, _WITHOUT_AUDIT, _MALFORMED = 240, 80, 12
_FOLDERS = {"Europe": "europe", "BigOrders": "big", "Audit": "audit"}
_PATIENCE_SECONDS = 180.0


@dataclass(frozen=True, kw_only=True)
class Order:
    """One file of the demo, and where it should end up."""

    name: str
    content: bytes
    ports: frozenset[str]
    malformed: bool = False


@dataclass(frozen=True, kw_only=True)
class Figures:
    """What has happened so far."""

    received: int
    delivered: Counter[str] = field(default_factory=Counter)
    suspended: Counter[str] = field(default_factory=Counter)
    waiting: int = 0

    @property
    def routed(self) -> int:
        """Messages that went to somebody: received, less those that were suspended on their way in."""
        return self.received - self.suspended["malformed"] - self.suspended["nobody subscribes"]


#: Told what begins, and how far it is.
Show = Callable[[str, Figures], None]


class Demo:
    """The example application, run once from dropping the files to checking what became of them."""

    def __init__(self, supervisor: Supervisor, url: str, home: Path, show: Show) -> None:
        self._supervisor = supervisor
        self._url = url
        self._home = home
        self._show = show

    def run(self) -> tuple[Figures, Figures, list[str]]:
        """Expected and actual figures, and everything that differs; nothing differs if all is well."""
        orders = _orders()
        audited, unaudited = orders[: _WITH_AUDIT + _MALFORMED], orders[_WITH_AUDIT + _MALFORMED :]
        with self._running(), connect(self._url, application_name="postroom demo") as connection:
            self._drop(audited)
            self._wait(connection, f"{len(audited)} orders dropped, {_MALFORMED} of them malformed", _expected(audited))
            send_ports.unenlist(connection, "Audit")
            self._drop(unaudited)
            expected = _expected(orders)
            self._wait(connection, f"Audit unenlisted, {len(unaudited)} more orders dropped", expected)
            actual = self._look(connection)
        return expected, actual, self._differences(orders, expected, actual)

    @contextmanager
    def _running(self) -> Iterator[None]:
        stop = threading.Event()
        failed: list[BaseException] = []

        def supervise() -> None:
            try:
                self._supervisor.run(stop)
            except BaseException as error:
                failed.append(error)

        thread = threading.Thread(target=supervise, name="supervisor")
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if failed:
            raise failed[0]

    def _drop(self, orders: list[Order]) -> None:
        folder = self._home / "in"
        folder.mkdir(exist_ok=True)
        for order in orders:
            (folder / order.name).write_bytes(order.content)

    def _wait(self, connection: Connection, what: str, expected: Figures) -> None:
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            now = self._look(connection)
            self._show(what if now.received else f"{what}; Spark is starting", now)
            if now == expected:
                return
            if time.monotonic() > deadline:
                raise StateError(
                    f"The demo is not done after {_PATIENCE_SECONDS:.0f} seconds.",
                    why=f"Expected {expected}, found {now}.",
                    hint=f"The logs are in {self._home / '.postroom' / 'logs'}.",
                )
            time.sleep(0.2)

    def _look(self, connection: Connection) -> Figures:
        received = connection.execute("SELECT count(*) FROM receipts").fetchone()
        waiting = connection.execute(
            "SELECT (SELECT count(*) FROM work_queue) + (SELECT count(*) FROM scheduled_queue)"
        ).fetchone()
        reasons = connection.execute(
            "SELECT CASE WHEN cause = 3 THEN 'routing failure report' WHEN error_code = 'PIPELINE' THEN 'malformed'"
            "            WHEN error_code = 'ROUTING' THEN 'nobody subscribes' ELSE error_code END, count(*)"
            "  FROM suspended_queue GROUP BY 1"
        )
        assert received is not None
        assert waiting is not None
        delivered = {port: len(self._delivered(port)) for port in _FOLDERS}
        return Figures(
            received=received[0],
            delivered=Counter({port: count for port, count in delivered.items() if count}),
            suspended=Counter(dict(reasons.fetchall())),
            waiting=waiting[0],
        )

    def _delivered(self, port: str) -> list[Path]:
        folder = self._home / "out" / _FOLDERS[port]
        return [path for path in folder.glob("*") if path.is_file() and not path.name.startswith(".")]

    def _differences(self, orders: list[Order], expected: Figures, actual: Figures) -> list[str]:
        differences = [] if actual == expected else [f"expected {expected}, found {actual}"]
        for port in _FOLDERS:
            sent = Counter(order.content for order in orders if port in order.ports)
            arrived = Counter(path.read_bytes() for path in self._delivered(port))
            for content in (sent - arrived).elements():
                differences.append(f"{port} did not get {content!r}")
            for content in (arrived - sent).elements():
                differences.append(f"{port} got {content!r}, which is not for it")
        return differences


def _orders() -> list[Order]:
    """The same orders every time: well-formed ones with some malformed among them, then those that Audit misses."""
    dice = random.Random(2026)
    first = [_order(dice, number, audited=True) for number in range(_WITH_AUDIT)]
    broken = [
        Order(
            name=f"broken-{number:03}.json", content=b'{"region": "EU", "total": 12', ports=frozenset(), malformed=True
        )
        for number in range(_MALFORMED)
    ]
    second = [_order(dice, _WITH_AUDIT + number, audited=False) for number in range(_WITHOUT_AUDIT)]
    mixed = first + broken
    dice.shuffle(mixed)
    return mixed + second


def _order(dice: random.Random, number: int, *, audited: bool) -> Order:
    region = dice.choice(["EU", "EU", "US", "ASIA", "TEST"])
    total = dice.choice([9.99, 250, 4999.5, 9999.99, 10000, 25000.75])
    priority = dice.choice([1, 2, 3, 4, 5])
    goes_to = set()
    if region == "EU":
        goes_to.add("Europe")
    if (total >= 10_000 and region != "TEST") or priority == 1:
        goes_to.add("BigOrders")
    if audited:
        goes_to.add("Audit")
    content = json.dumps({"order": number, "region": region, "total": total, "priority": priority}).encode()
    return Order(name=f"order-{number:03}.json", content=content, ports=frozenset(goes_to))


def _expected(orders: list[Order]) -> Figures:
    suspended: Counter[str] = Counter()
    suspended["malformed"] = sum(order.malformed for order in orders)
    nobody = sum(not order.ports and not order.malformed for order in orders)
    if nobody:
        suspended["nobody subscribes"] = suspended["routing failure report"] = nobody
    return Figures(
        received=len(orders),
        delivered=Counter(port for order in orders for port in order.ports),
        suspended=suspended,
    )
