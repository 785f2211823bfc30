"""Postroom is installed from its wheel. The demo, the tutorial and a new application work in an empty folder."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.example_applications import EXAMPLES
from postroom.messagebox.embedded import EmbeddedServer, server_folder
from tests.support.folders import open_folder
from tests.support.pages import ROOT, blocks
from tests.support.waiting import wait_until
from tests.support.wheel_environment import WheelEnvironment, build_distributions

FIRST, SECOND = (ROOT / "docs" / "tutorial" / name for name in ("first-application.md", "follow-and-fix-a-message.md"))


@pytest.fixture(scope="module")
def shared_folder() -> Iterator[Path]:
    with open_folder() as opened:
        yield opened


@pytest.fixture(scope="module")
def distributions(shared_folder: Path) -> tuple[Path, Path]:
    return build_distributions(shared_folder)


@pytest.fixture(scope="module")
def environment(shared_folder: Path, distributions: tuple[Path, Path]) -> WheelEnvironment:
    return WheelEnvironment(shared_folder / "environment", distributions[1])


@pytest.fixture
def folder(shared_folder: Path, request: pytest.FixtureRequest) -> Path:
    created = shared_folder / str(request.node.name)
    created.mkdir()
    return created


def test_the_wheel_and_the_source_distribution_have_the_same_files(distributions: tuple[Path, Path]) -> None:
    sdist, wheel = distributions
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("postroom/")}
    here = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "postroom").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    # A link to the pages, which rglob does not follow.
    here |= {f"postroom/{page.relative_to(ROOT).as_posix()}" for page in (ROOT / "docs").rglob("*.md")}
    assert packed == here
    with tarfile.open(sdist) as archive:
        named = {name.partition("/src/")[2] for name in archive.getnames()}
    assert here <= named
    assert {f"postroom/examples/{name}/README.md" for name in EXAMPLES} <= packed


def test_postroom_is_imported_from_the_environment(
    environment: WheelEnvironment, shared_folder: Path, folder: Path
) -> None:
    found = environment.run("python -c 'import postroom; print(postroom.__file__)'", folder=folder)
    assert Path(found.strip()).is_relative_to(shared_folder / "environment")
    assert "postroom" in json.loads(environment.run("postroom version -o json", folder=folder))
    assert environment.run("postroom docs monitor", folder=folder).startswith("# Monitor\n")


@pytest.mark.sample("installed package")
def test_the_demo_delivers_every_order_to_the_expected_folder(environment: WheelEnvironment, folder: Path) -> None:
    result = json.loads(environment.run("postroom demo -o json --home 'a home with spaces'", folder=folder))
    assert result["differences"] == []
    assert result["found"] == result["expected"]
    assert result["found"]["suspended: PIPELINE"] > 0
    assert result["found"]["suspended: ROUTING"] > 0
    assert list(folder.iterdir()) == []


def wait_for_files(folder: Path, count: int) -> None:
    def is_there() -> bool:
        return len([path for path in folder.glob("*") if not path.name.startswith(".")]) == count

    wait_until(is_there, what=f"{count} files in {folder}")


def read_commands(page: Path, start: str) -> list[str]:
    """Return the command lines of a page that begin with ``start``."""
    return [
        line.removeprefix("$ ")
        for block in blocks(page, "console")
        for line in block.text.splitlines()
        if line.startswith(f"$ {start}")
    ]


@pytest.mark.sample("installed package")
def test_the_commands_of_the_tutorial_work_and_a_second_application_runs_too(
    environment: WheelEnvironment, folder: Path
) -> None:
    app, publish = (block.text for block in blocks(FIRST, "python"))
    (folder / "app.py").write_text(app)
    (folder / "publish.py").write_text(publish)
    [plan] = read_commands(FIRST, "postroom plan")
    assert format_output(environment.run(plan, folder=folder)) in FIRST.read_text()
    [up] = read_commands(FIRST, "postroom up")
    data = folder / "data"
    try:
        with environment.up(up.removeprefix("postroom up "), folder=folder, until="drop: receiving"):
            first, second = read_commands(FIRST, "printf")
            environment.run(first, folder=folder)
            wait_for_files(data / "out" / "europe", 1)
            wait_for_files(data / "out" / "big", 1)
            environment.run(second, folder=folder)
            wait_for_files(data / "out" / "big", 2)
            for _ in range(2):
                assert environment.run("python publish.py", folder=folder) == "('Europe',)\n"
            wait_for_files(data / "out" / "europe", 2)
            follow_and_fix(environment, folder, data)
            add_new_application(environment, folder, data)
    finally:
        EmbeddedServer(server_folder(data)).destroy()


def follow_and_fix(environment: WheelEnvironment, folder: Path, data: Path) -> None:
    """Run the second page: explain a message, correct a failed message, add a subscriber, stop and start a port."""
    [explain] = read_commands(SECOND, "postroom explain")
    assert format_output(environment.run(explain, folder=data)) in SECOND.read_text()
    broken, fixed, small, stopped = read_commands(SECOND, "printf")
    resume, resume_routed = read_commands(SECOND, "postroom instance resume")

    def wait_for_suspended(code: str) -> str:
        def find_instances() -> list[str]:
            rows = json.loads(environment.run("postroom instance list -o json", folder=data))
            return [row["instance_id"] for row in rows if row["error_code"] == code and row["service"] == "drop"]

        return wait_until(find_instances, what=code)[0]

    environment.run(broken, folder=data)
    instance = wait_for_suspended("PIPELINE")
    assert environment.run(f"postroom message body {instance}", folder=data) == '{"region": "US", "total": "a lot"}'
    environment.run(fixed, folder=data)
    assert environment.run(replace_id(resume, instance), folder=data) == "1 instance resumed.\n"
    wait_for_files(data / "out" / "big", 3)

    environment.run(small, folder=data)
    instance = wait_for_suspended("ROUTING")
    [added] = [block.text for block in blocks(SECOND, "text")]
    app = (folder / "app.py").read_text().replace("import Application", "import BTS, Application")
    (folder / "app.py").write_text(app + added)
    [apply] = read_commands(SECOND, "postroom apply")
    environment.run(apply, folder=data)
    assert environment.run(replace_id(resume_routed, instance), folder=data) == "1 instance resumed.\n"
    wait_for_files(data / "out" / "all", 1)

    environment.run("postroom port stop Europe", folder=data)
    environment.run(stopped, folder=data)
    wait_for_files(data / "out" / "all", 2)
    started = environment.run("postroom port start Europe -o json", folder=data)
    assert [port["resumed"] for port in json.loads(started)] == [1]
    wait_for_files(data / "out" / "europe", 3)


def add_new_application(environment: WheelEnvironment, folder: Path, data: Path) -> None:
    """Add an application of ``postroom init``. The running hosts and pipelines serve it after `apply`."""
    environment.run("postroom init insurance --example failures", folder=folder)
    environment.run("postroom apply ../insurance/app.py", folder=data)
    readme = (folder / "insurance" / "README.md").read_text()
    [command] = [line.strip() for line in readme.splitlines() if line.startswith("    printf ")]
    wait_until((data / "claims").is_dir, what="the folder of the new location")
    environment.run(command, folder=data)
    wait_for_files(data / "out" / "repair", 1)


def format_output(output: str) -> str:
    """Remove the blanks at the ends of lines, as the pages do."""
    return "".join(f"{line.rstrip()}\n" for line in output.splitlines())


def replace_id(line: str, instance: str) -> str:
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", instance, line)
