"""The demos of the example applications have the expected results. All demos run at once in one home folder."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from postroom.application.definition import ApplicationDefinition
from postroom.application.loading.load import load
from postroom.example_applications import EXAMPLES, DemoResult, get_example_folder, load_steps, run_in_thread, run_steps
from postroom.messagebox.connection import connect
from postroom.operations.deployment.apply import apply
from postroom.up.supervisor import SparkOptions, Supervisor
from tests.support.databases import Databases
from tests.support.folders import open_folder
from tests.support.reserved_port import reserve_port
from tests.support.waiting import PATIENCE


def run_example(name: str, definition: ApplicationDefinition, url: str, home: Path) -> DemoResult:
    with connect(url, application_name="postroom demo") as connection:
        return run_steps(connection, definition, load_steps(name), home, lambda *_: None, patience=PATIENCE)


@pytest.fixture(scope="module")
def results(databases: Databases) -> Iterator[dict[str, DemoResult]]:
    """Run the demo of every example and yield the results."""
    with (
        databases.clone() as url,
        open_folder() as folder,
        pytest.MonkeyPatch.context() as patch,
        reserve_port() as port,
        reserve_port() as pricing_port,
    ):
        patch.setenv("PORT", str(port))
        patch.setenv("PRICING_PORT", str(pricing_port))
        home = folder / "a home with spaces"
        home.mkdir()
        definitions = {name: load(get_example_folder(name) / "app.py") for name in EXAMPLES}
        with connect(url) as connection:
            for definition in definitions.values():
                apply(connection, definition, home=home)
        spark = SparkOptions(master="local[2]")
        with run_in_thread(Supervisor(url, home, spark=spark)), ThreadPoolExecutor(len(EXAMPLES)) as pool:
            running = {name: pool.submit(run_example, name, definitions[name], url, home) for name in EXAMPLES}
            try:
                yield {name: application.result() for name, application in running.items()}
            except Exception as error:
                for log in (home / ".postroom" / "logs").iterdir():
                    error.add_note(f"{log.name}: {log.read_text(encoding='utf-8')[-4000:]}")
                raise


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_demo_delivers_and_suspends_the_expected_messages(results: dict[str, DemoResult], name: str) -> None:
    result = results[name]
    assert result.differences == []
    assert result.actual == result.expected
    assert all(count > 0 for count in result.expected.delivered.values())
