"""Fixtures for all tests. A server is started only for a test that uses it."""

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
from tests.support.sampling import choose_sample, read_long_test

if TYPE_CHECKING:
    from postroom.messagebox.embedded import EmbeddedServer
    from tests.support.box import Box
    from tests.support.databases import Databases

# Settings for tests that do not depend on durability.
NOT_DURABLE = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
SMALL = {"shared_buffers": "128MB"}

# No example fails because it is slow. Each run has the same examples; `--hypothesis-profile=thorough` has more.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
settings.register_profile("thorough", settings.get_profile("patient"), max_examples=2000, derandomize=False)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--approve", action="store_true", help="Write the approved snapshots again.")
    parser.addoption("--sample", metavar="SEED", help="Run some of the long tests. SEED is any number.")


def pytest_configure() -> None:
    """Remove the settings of the shell, so that tests and their processes do not depend on them."""
    for name in list(os.environ):
        if name.startswith(("POSTROOM_", "PG")):
            del os.environ[name]


def pytest_sessionstart(session: pytest.Session) -> None:
    _write_seed(session.config)


def pytest_terminal_summary(config: pytest.Config) -> None:
    _write_seed(config)


def _write_seed(config: pytest.Config) -> None:
    """Write the seed at the start, in case the run does not end, and after the results. Workers have no terminal."""
    seed, terminal = config.option.sample, config.pluginmanager.get_plugin("terminalreporter")
    if seed is not None and terminal is not None:
        terminal.write_line(
            f"Seed {seed} has chosen some of the long tests. "
            f"Repeat with: make test SEED={seed}. Run all tests with: make test ALL=1."
        )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.sample is not None:
        _deselect_others(config, items, config.option.sample)
    _group_by_worker(items)


def _deselect_others(config: pytest.Config, items: list[pytest.Item], seed: str) -> None:
    """Deselect the long tests that are not in the sample."""
    long = {item.nodeid: test for item in items if (test := read_long_test(item)) is not None}
    deselected = long.keys() - choose_sample(long.values(), seed)
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in deselected])
    items[:] = [item for item in items if item.nodeid not in deselected]


def _group_by_worker(items: list[pytest.Item]) -> None:
    """Run tests that share a Spark session or a fixture of their module in one worker.

    Otherwise every worker would create its own. A Spark session takes seconds and a gigabyte of memory. Tests of faults
    are the longest and run first, so that no worker is left with one at the end. pytest-xdist reads the groups in the
    same hook, after this function."""
    folder = Path(__file__).parent
    items.sort(key=lambda item: item.path.relative_to(folder).parts[0] != "faults")
    for item in items:
        path = item.path.relative_to(folder)
        if path.parts[0] == "spark":
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif isinstance(item, pytest.Function) and _has_module_fixture(item):
            item.add_marker(pytest.mark.xdist_group(str(path)))


def _has_module_fixture(item: pytest.Function) -> bool:
    return any(found[-1].scope == "module" for found in item._fixtureinfo.name2fixturedefs.values())


def pytest_make_parametrize_id(val: object) -> str | None:
    """Return a fixed id for binary values. Archives contain the time, and all workers need the same test ids."""
    if isinstance(val, bytes) and not (val.isascii() and val.decode().isprintable()):
        return "bytes"
    return None


@pytest.fixture(name="assert_approved")
def approved_snapshot(request: pytest.FixtureRequest) -> AssertApproved:
    """Return a function that compares a text with the file of that name in the folder ``approved`` of the test."""

    def check(text: str, name: str) -> None:
        approved = request.path.parent / "approved" / name
        assert_approved(text, approved, approve=request.config.getoption("--approve"))

    return check


@pytest.fixture(scope="session")
def server() -> Iterator[EmbeddedServer]:
    """Yield the PostgreSQL of this worker, which is not durable."""
    with start_server(NOT_DURABLE | SMALL) as running:
        yield running


@pytest.fixture(scope="session")
def durable_server() -> Iterator[EmbeddedServer]:
    """Yield the durable PostgreSQL of this worker."""
    with start_server(SMALL) as running:
        yield running


@pytest.fixture(scope="session")
def databases(server: EmbeddedServer) -> Iterator[Databases]:
    from tests.support.databases import Databases

    with Databases(server) as opened:
        yield opened


@pytest.fixture(scope="session")
def durable_databases(durable_server: EmbeddedServer) -> Iterator[Databases]:
    from tests.support.databases import Databases

    with Databases(durable_server) as opened:
        yield opened


@pytest.fixture
def database(databases: Databases) -> Iterator[str]:
    """Yield the URL of a new MessageBox, with the login of its owner."""
    with databases.clone() as url:
        yield url


@pytest.fixture
def box(databases: Databases) -> Iterator[Box]:
    """Yield a new MessageBox with one host and the properties of orders."""
    with databases.open_box() as opened:
        yield opened


@pytest.fixture
def durable_database(durable_databases: Databases) -> Iterator[str]:
    """Yield the URL of a new MessageBox on the durable server."""
    with durable_databases.clone() as url:
        yield url


@pytest.fixture
def home() -> Iterator[Path]:
    """Yield a folder for `--home`. The embedded server in it is destroyed after the test."""
    from postroom.messagebox.embedded import EmbeddedServer, server_folder

    with open_folder() as folder:
        yield folder
        EmbeddedServer(server_folder(folder)).destroy()


@contextmanager
def start_server(settings: dict[str, str]) -> Iterator[EmbeddedServer]:
    from postroom.messagebox.embedded import EmbeddedServer

    with open_folder(in_memory=settings.get("fsync") == "off") as folder:
        server = EmbeddedServer(folder / "postgres", settings=settings)
        try:
            server.start()
            yield server
        finally:
            server.destroy()
