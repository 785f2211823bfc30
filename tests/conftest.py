"""Fixtures that every tier may use. All are lazy: a test that asks for none of them starts nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from tests.support.approved import AssertApproved, assert_approved
from tests.support.folders import open_folder

if TYPE_CHECKING:
    from postroom.messagebox.embedded import EmbeddedServer
    from tests.support.box import Box
    from tests.support.databases import Databases

# For tests that do not ask what survives a crash of the machine; nothing else differs.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
SMALL = {"shared_buffers": "128MB"}

# No example fails for being slow. `--hypothesis-profile=thorough` tries more where a test does not say how many.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", settings.get_profile("patient"), max_examples=2000)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--approve", action="store_true", help="Write the approved snapshots again.")


def pytest_configure() -> None:
    """The shell's own settings must not reach a test, nor a process that a test starts."""
    for name in list(os.environ):
        if name.startswith(("POSTROOM_", "PG")):
            del os.environ[name]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests that share something run in one worker, which would be made in each otherwise: the Spark session, which
    costs seconds and a gigabyte, and what is set up for a module."""
    for item in items:
        path = item.path.relative_to(Path(__file__).parent)
        if path.parts[0] == "spark":
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif isinstance(item, pytest.Function) and _is_set_up_for_its_module(item):
            item.add_marker(pytest.mark.xdist_group(str(path)))


def _is_set_up_for_its_module(item: pytest.Function) -> bool:
    return any(found[-1].scope == "module" for found in item._fixtureinfo.name2fixturedefs.values())


def pytest_make_parametrize_id(val: object) -> str | None:
    """Archives have the time in them, and the workers have to agree on the names of tests."""
    if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()):
        return "bytes"
    return None


@pytest.fixture(name="assert_approved")
def approved_snapshot(request: pytest.FixtureRequest) -> AssertApproved:
    """Compares a text with the approved file of that name, in the folder ``approved`` beside the test."""

    def check(text: str, name: str) -> None:
        approved = request.path.parent / "approved" / name
        assert_approved(text, approved, approve=request.config.getoption("--approve"))

    return check


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """The worker's own PostgreSQL, which does not wait for the disk."""
    with own_server(NOT_DURABLE | SMALL) as running:
        yield running


@pytest.fixture(scope="session")
def durable_server() -> Iterator[EmbeddedServer]:
    """The worker's own PostgreSQL with the settings that users get."""
    with own_server(SMALL) as running:
        yield running


@pytest.fixture(scope="session")
def databases(server: EmbeddedServer) -> Databases:
    from tests.support.databases import Databases

    return Databases(server)


@pytest.fixture(scope="session")
def durable_databases(durable_server: EmbeddedServer) -> Databases:
    from tests.support.databases import Databases

    return Databases(durable_server)


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    """The URL of a fresh MessageBox, owned by the superuser."""
    with databases.clone() as url:
        yield url


@pytest.fixture
def box(databases: Databases) -> Iterator[Box]:
    """A fresh MessageBox with one host and the orders' properties, and short ways to act on it."""
    with databases.open_box() as opened:
        yield opened


@pytest.fixture
def durable_database(durable_databases: Databases) -> Iterator[str]:
    """As `database`, on a server that waits for the disk."""
    with durable_databases.clone() as url:
        yield url


@pytest.fixture
def home() -> Iterator[Path]:
    """A folder for `--home`. An embedded server that a test starts under it must be stopped when the test ends."""
    from postroom.messagebox.embedded import EmbeddedServer, server_folder

    with open_folder() as folder:
        yield folder
        EmbeddedServer(server_folder(folder)).destroy()


@contextmanager
def own_server(settings: dict[str, str]) -> Iterator[EmbeddedServer]:
    from postroom.messagebox.embedded import EmbeddedServer

    with open_folder(in_memory=settings.get("fsync") == "off") as folder:
        server = EmbeddedServer(folder / "postgres", settings=settings)
        try:
            server.start()
            yield server
        finally:
            server.destroy()
