"""A receive location is removed while a file or an interchange is received for it (ORS-11). Nothing is lost."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from postroom import Application, adapters
from postroom.adapters import ReceiveDefinition
from postroom.errors import DefinitionRefused, MissingReference
from postroom.message import Context
from postroom.messagebox.configuration.hosts import read_hosts
from postroom.messagebox.connection import Connection, connect
from postroom.messagebox.intake import file_claims, inbox
from postroom.messagebox.intake.file_claims import FileClaimState
from postroom.messagebox.maintenance.check import find_violations
from postroom.operations.deployment import apply as deployment
from postroom.operations.deployment.compare import compare
from postroom.ports.receive_locations import read_receive_locations
from tests.support.contents import Contents
from tests.support.deployment import deploy
from tests.support.waiting import wait_until

ADAPTERS: dict[str, ReceiveDefinition] = {
    "file": adapters.File("in"),
    "interchange": adapters.HttpReceive("/orders", port=8080),
}
Receive = Callable[[Connection], None]


def build_application(*kinds: str) -> Application:
    app = Application("orders")
    for kind in kinds:
        app.receive_port(f"{kind}In").location(kind, ADAPTERS[kind])
    return app


@pytest.fixture(params=ADAPTERS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def receive(connection: Connection, kind: str) -> Receive:
    """Return a function that receives a file or an interchange as the location would."""
    deploy(connection, build_application(kind))
    (location,) = read_receive_locations(connection)

    def receive_one(other: Connection) -> None:
        if kind == "file":
            file_claims.insert_file_claims(
                other, location.location_id, [(uuid.uuid4(), "a.json", Path("/in/.postroom/x/a.json"))]
            )
        else:
            inbox.store_in_inbox(other, location.location_id, uuid.uuid4(), Context(), [b"{}"])

    return receive_one


@pytest.fixture
def other(connection: Connection, database: str, receive: Receive) -> Iterator[Connection]:
    """Return a session of the location's host."""
    with connect(database, user=read_hosts(connection)[0].role_name) as session:
        yield session


def count_unfinished(connection: Connection) -> int:
    contents = Contents(connection)
    return contents.count("file claims") + contents.count("inbox")


def test_a_file_claimed_after_the_comparison_prevents_the_removal(
    connection: Connection, other: Connection, kind: str, receive: Receive, monkeypatch: pytest.MonkeyPatch
) -> None:

    def compare_and_receive(*given: Any) -> Any:
        decided = compare(*given)
        receive(other)
        return decided

    monkeypatch.setattr(deployment, "compare", compare_and_receive)
    with pytest.raises(DefinitionRefused, match=f"cannot be removed: 1 received {kind} is not published"):
        deploy(connection, build_application())
    assert count_unfinished(other) == 1


def test_an_uncommitted_claim_prevents_the_removal_without_a_wait(
    connection: Connection, other: Connection, kind: str, receive: Receive
) -> None:
    connection.execute("SET lock_timeout = '10s'")
    with other.transaction():
        receive(other)
        with pytest.raises(DefinitionRefused, match=f"cannot be removed: 1 received {kind} is not published"):
            deploy(connection, build_application())
    assert count_unfinished(other) == 1
    with pytest.raises(DefinitionRefused, match=f"1 received {kind}"):
        deploy(connection, build_application())


def test_a_claim_after_the_removal_is_rejected(connection: Connection, other: Connection, receive: Receive) -> None:
    refused: list[Exception] = []

    def receive_later() -> None:
        try:
            receive(other)
        except MissingReference as error:
            refused.append(error)

    coming = threading.Thread(target=receive_later)
    with connection.transaction():
        deploy(connection, build_application())
        coming.start()
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = %s"
        pid = other.info.backend_pid
        wait_until(lambda: connection.execute(waits, (pid,)).fetchone() == (1,), what="it waits for the removal")
    coming.join()
    assert len(refused) == 1
    assert count_unfinished(connection) == 0
    assert find_violations(connection) == []


@pytest.mark.parametrize("kind", ["file"], indirect=True)
@pytest.mark.parametrize(
    ("state", "path", "keeps"),
    [
        (FileClaimState.PUBLISHED, "/in/.postroom/x/a.json", True),
        (FileClaimState.PUBLISHED, "/in/.postroom/kept/a.json", False),
        (FileClaimState.MISSING, "/in/.postroom/x/a.json", False),
        (FileClaimState.FAILED, "/in/.postroom/x/a.json", True),
    ],
)
def test_quarantined_files_prevent_the_removal_and_finished_ones_do_not(
    connection: Connection, other: Connection, receive: Receive, state: FileClaimState, path: str, keeps: bool
) -> None:
    receive(other)
    Contents(connection).change_file_claims(state=state, path=path)
    if keeps:
        with pytest.raises(DefinitionRefused, match="1 received file"):
            deploy(connection, build_application())
    else:
        deploy(connection, build_application())
    assert count_unfinished(connection) == int(keeps)
    assert len(read_receive_locations(connection)) == int(keeps)


def test_check_reports_intake_without_a_location_and_a_new_declaration_continues_it(
    connection: Connection, other: Connection, kind: str, receive: Receive
) -> None:
    receive(other)
    Contents(connection).delete_locations_of_intake()
    assert count_unfinished(connection) == 1
    (violation,) = find_violations(connection)
    assert (violation.invariant, violation.count) == ("intake_without_location", 1)
    assert kind in violation.examples[0]
    assert count_unfinished(other) == 0, "it would never be read"
    deploy(connection, build_application(kind))
    assert count_unfinished(other) == 1
    assert find_violations(connection) == []
    if kind == "file":
        file_claims.reset_all_claims(other, read_receive_locations(connection)[0].location_id)
