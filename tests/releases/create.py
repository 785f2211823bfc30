"""Leave a MessageBox of this version for the tests of later versions: ``python -m tests.releases.create``.

It writes the folder ``tests/releases/VERSION`` with a backup of a MessageBox in use, and a checksum of each schema
file.
The backup has a message in each place where one can wait:

    order 1    delivered to Audit, suspended at Partner, scheduled at Later; its orchestration waits for the payment
    order 2    queued for all subscribers, published with an idempotency key
    order 3    a claimed file that is not published
    no JSON    suspended by its receive pipeline
"""

from __future__ import annotations

import hashlib
import shutil
from importlib.metadata import version
from pathlib import Path

from postroom.messagebox.connection import connect
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.messagebox.statements import list_statements, statement
from postroom.ports.receive_locations import read_receive_locations
from postroom.receiving.files.file_claimer import FileClaimer
from tests.support.installation import Installation
from tests.support.waiting import wait_until

RELEASES = Path(__file__).parent
SCHEMA = "schema.sha256"
#: The same on every machine, because it is stored in the backup.
_HOME = Path("/tmp/postroom-release")


def hash_schema() -> list[str]:
    """Return the checksum and the name of each schema file of this version."""
    return [f"{hashlib.sha256(statement(name).encode()).hexdigest()}  {name}" for name in list_statements("schema")]


def format_order(number: int) -> bytes:
    return f'{{"kind": "order", "id": "{number}"}}'.encode()


def publish(installation: Installation, kind: str, number: int, *options: str) -> None:
    """Publish an order or a payment."""
    file = installation.home / f"{kind}-{number}.json"
    file.write_bytes(format_order(number))
    installation.run("publish", str(file), "-p", f"Shop.Kind={kind}", "-p", f"Shop.OrderId={number}", *options)


def create_release(folder: Path) -> None:
    """Create a MessageBox in use and back it up to the new ``folder``."""
    _HOME.mkdir()
    try:
        server = EmbeddedServer(server_folder(_HOME))
        server.start()
        with Installation(_HOME, server.url()) as installation:
            shutil.copy(RELEASES / "shop.py", _HOME / "app.py")
            installation.run("apply", str(_HOME / "app.py"))
            _deliver_first_order(installation)
            publish(installation, "order", 2, "--key", "order-2")
            _receive(installation, server.url())
            installation.run("backup", str(folder), "--include", str(_HOME / "app.py"))
        server.destroy()
    finally:
        shutil.rmtree(_HOME)
    (folder / SCHEMA).write_text("\n".join(hash_schema()) + "\n")


def _deliver_first_order(installation: Installation) -> None:
    (_HOME / "out").mkdir()
    for port in ("partner", "later"):
        (_HOME / "out" / port).write_text("A file in place of the folder makes the port fail.")
    host = installation.start_host()
    publish(installation, "order", 1)
    installation.wait_for_files("out/audit", 1)
    wait_until(lambda: _is_tried(installation), what="the attempts to deliver order 1")
    host.stop()


def _is_tried(installation: Installation) -> bool:
    found = {row["service"]: row for row in installation.run_json("instance", "list")}
    return bool(
        found["Partner"]["state"] == "suspended"
        and found["Later"]["attempt"] >= 2
        and found["ship_when_paid"]["state"] == "waiting"
    )


def _receive(installation: Installation, url: str) -> None:
    installation.receive("drop", b"no JSON")
    installation.drop_file("3.json", format_order(3))
    with connect(url) as connection:
        [location] = read_receive_locations(connection)
        claimer = FileClaimer(connection, location, _HOME)
        wait_until(lambda: claimer.scan().claimed, what="a claimed file")


if __name__ == "__main__":
    create_release(RELEASES / version("postroom"))
