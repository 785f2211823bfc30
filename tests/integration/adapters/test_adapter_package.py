"""The adapter of the how-to page, built and installed as a package of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.pages import ROOT, blocks
from tests.support.waiting import PATIENCE

PAGE = ROOT / "docs" / "how-to" / "write-an-adapter.md"


class AdapterPackage:
    """The package of the page, installed in a folder."""

    def __init__(self, folder: Path) -> None:
        sources, self._installed = folder / "sources", folder / "installed"
        sources.mkdir()
        self.adapter = [block.text for block in blocks(PAGE, "python") if not block.words]
        self.application, self.tests = (block.text for block in blocks(PAGE, "python") if "installed" in block.words)
        (sources / "acme_mailbox.py").write_text("\n\n".join(self.adapter), encoding="utf-8")
        (sources / "pyproject.toml").write_text(blocks(PAGE, "toml")[0].text, encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
        self._run([*pip, "--disable-pip-version-check", "--target", str(self._installed), str(sources)], folder)

    def run(self, *arguments: str, folder: Path) -> str:
        """Run a module of Python with the installed package. Return its output."""
        return self._run([sys.executable, "-m", *arguments], folder)

    def _run(self, command: list[str], folder: Path) -> str:
        path = os.pathsep.join([str(self._installed), str(ROOT / "src")])
        ended = subprocess.run(
            command,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return ended.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> AdapterPackage:
    return AdapterPackage(tmp_path_factory.mktemp("package"))


def test_an_application_with_the_installed_adapter_can_be_planned(package: AdapterPackage, tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(package.application, encoding="utf-8")
    planned = package.run("postroom", "plan", "app.py", "--home", str(tmp_path), folder=tmp_path)
    assert "box" in planned


def test_the_installed_adapter_passes_the_tests_of_the_page(package: AdapterPackage, tmp_path: Path) -> None:
    (tmp_path / "test_mailbox.py").write_text(package.tests, encoding="utf-8")
    report = package.run("pytest", "-q", "-p", "no:cacheprovider", "test_mailbox.py", folder=tmp_path)
    assert " passed" in report


@pytest.mark.parametrize("direction", ["receives", "sends"])
def test_the_adapter_of_one_direction_has_at_most_fifty_lines(package: AdapterPackage, direction: str) -> None:
    definition, receiver, sender = package.adapter
    written = definition + (receiver if direction == "receives" else sender)
    assert len([line for line in written.splitlines() if line.strip()]) <= 50
