"""Postroom from its wheel, in an empty folder: the demo, a new application and the tutorial work."""

from __future__ import annotations

import json
import re
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from postroom.messagebox.embedded import EmbeddedServer, server_folder
from postroom.operations.demo import EXAMPLES
from tests.support.folders import open_folder
from tests.support.installed import Installed, build_distributions
from tests.support.pages import ROOT, blocks
from tests.support.waiting import wait_until

FIRST, SECOND = (ROOT / "docs" / "tutorial" / name for name in ("first-application.md", "follow-and-fix-a-message.md"))


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    with open_folder() as folder:
        yield folder


@pytest.fixture(scope="module")
def distributions(place: Path) -> tuple[Path, Path]:
    return build_distributions(place)


@pytest.fixture(scope="module")
def installed(place: Path, distributions: tuple[Path, Path]) -> Installed:
    return Installed(place / "environment", distributions[1])


@pytest.fixture
def empty(place: Path, request: pytest.FixtureRequest) -> Path:
    folder = place / str(request.node.name)
    folder.mkdir()
    return folder


def test_the_wheel_and_the_source_distribution_have_the_same_files(distributions: tuple[Path, Path]) -> None:
    sdist, wheel = distributions
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if name.startswith("postroom/")}
    here = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "postroom").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert packed == here
    with tarfile.open(sdist) as archive:
        named = {name.partition("/src/")[2] for name in archive.getnames()}
    assert here <= named
    assert {f"postroom/examples/{name}/README.md" for name in EXAMPLES} <= packed


def test_it_is_imported_from_the_environment(installed: Installed, place: Path, empty: Path) -> None:
    found = installed.run("python -c 'import postroom; print(postroom.__file__)'", folder=empty)
    assert Path(found.strip()).is_relative_to(place / "environment")
    assert "postroom" in json.loads(installed.run("postroom version -o json", folder=empty))


def test_every_order_of_the_demo_is_where_it_should_be(installed: Installed, empty: Path) -> None:
    told = json.loads(installed.run("postroom demo -o json --home 'a home with spaces'", folder=empty))
    assert told["differences"] == []
    assert told["found"] == told["expected"]
    assert told["found"]["suspended: PIPELINE"] > 0
    assert told["found"]["suspended: ROUTING"] > 0
    assert list(empty.iterdir()) == []


def wait_for_files(folder: Path, count: int) -> None:
    def is_there() -> bool:
        return len([path for path in folder.glob("*") if not path.name.startswith(".")]) == count

    wait_until(is_there, what=f"{count} files in {folder}")


def lines_of(page: Path, start: str) -> list[str]:
    """The command lines of a page that begin with ``start``."""
    return [
        line.removeprefix("$ ")
        for block in blocks(page, "console")
        for line in block.text.splitlines()
        if line.startswith(f"$ {start}")
    ]


def test_the_tutorial_works_as_it_is_written_and_a_new_application_beside_it(installed: Installed, empty: Path) -> None:
    app, publish = (block.text for block in blocks(FIRST, "python"))
    (empty / "app.py").write_text(app)
    (empty / "publish.py").write_text(publish)
    [plan] = lines_of(FIRST, "postroom plan")
    assert shown(installed.run(plan, folder=empty)) in FIRST.read_text()
    [up] = lines_of(FIRST, "postroom up")
    data = empty / "data"
    try:
        with installed.up(up.removeprefix("postroom up "), folder=empty, until="drop: receiving"):
            first, second = lines_of(FIRST, "printf")
            installed.run(first, folder=empty)
            wait_for_files(data / "out" / "europe", 1)
            wait_for_files(data / "out" / "big", 1)
            installed.run(second, folder=empty)
            wait_for_files(data / "out" / "big", 2)
            for _ in range(2):
                assert installed.run("python publish.py", folder=empty) == "('Europe',)\n"
            wait_for_files(data / "out" / "europe", 2)
            follow_and_fix(installed, empty, data)
            add_new_application(installed, empty, data)
    finally:
        EmbeddedServer(server_folder(data)).destroy()


def follow_and_fix(installed: Installed, folder: Path, data: Path) -> None:
    """The second page: explain a message, correct one that failed, give one a subscriber, stop and start a port."""
    [explain] = lines_of(SECOND, "postroom explain")
    assert shown(installed.run(explain, folder=data)) in SECOND.read_text()
    broken, fixed, small, stopped = lines_of(SECOND, "printf")
    resume, resume_routed = lines_of(SECOND, "postroom instance resume")

    def suspended(code: str) -> str:
        def look() -> list[str]:
            rows = json.loads(installed.run("postroom instance list -o json", folder=data))
            return [row["instance_id"] for row in rows if row["error_code"] == code and row["service"] == "drop"]

        return wait_until(look, what=code)[0]

    installed.run(broken, folder=data)
    instance = suspended("PIPELINE")
    assert installed.run(f"postroom message body {instance}", folder=data) == '{"region": "US", "total": "a lot"}'
    installed.run(fixed, folder=data)
    assert installed.run(with_id(resume, instance), folder=data) == "1 instance resumed.\n"
    wait_for_files(data / "out" / "big", 3)

    installed.run(small, folder=data)
    instance = suspended("ROUTING")
    [added] = [block.text for block in blocks(SECOND, "text")]
    app = (folder / "app.py").read_text().replace("import Application", "import BTS, Application")
    (folder / "app.py").write_text(app + added)
    [apply] = lines_of(SECOND, "postroom apply")
    installed.run(apply, folder=data)
    assert installed.run(with_id(resume_routed, instance), folder=data) == "1 instance resumed.\n"
    wait_for_files(data / "out" / "all", 1)

    installed.run("postroom port stop Europe", folder=data)
    installed.run(stopped, folder=data)
    wait_for_files(data / "out" / "all", 2)
    started = installed.run("postroom port start Europe -o json", folder=data)
    assert [port["resumed"] for port in json.loads(started)] == [1]
    wait_for_files(data / "out" / "europe", 3)


def add_new_application(installed: Installed, folder: Path, data: Path) -> None:
    """``postroom init`` writes an application that runs as it is: what is applied is taken up by what runs."""
    installed.run("postroom init insurance --example failures", folder=folder)
    installed.run("postroom apply ../insurance/app.py", folder=data)
    readme = (folder / "insurance" / "README.md").read_text()
    [command] = [line.strip() for line in readme.splitlines() if line.startswith("    printf ")]
    wait_until((data / "claims").is_dir, what="the folder of the new location")
    installed.run(command, folder=data)
    wait_for_files(data / "out" / "repair", 1)


def shown(output: str) -> str:
    """The output as a page shows it, without blanks at the ends of lines."""
    return "".join(f"{line.rstrip()}\n" for line in output.splitlines())


def with_id(line: str, instance: str) -> str:
    return re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", instance, line)
