"""Send ports that write into one folder must have different file names."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom import Application, adapters
from postroom.application.checks import shared_endpoints
from postroom.application.checks.shared_endpoints import shared_endpoint_problems

HOME = Path("/home")


def application(name: str, *ports: adapters.File) -> Application:
    app = Application(name)
    for number, adapter in enumerate(ports):
        app.send_port(f"{name}{number}", adapter)
    return app


def problems(new: Application, *deployed: Application) -> list[str]:
    found = shared_endpoint_problems(new.definition(), [application.definition() for application in deployed], HOME)
    return [str(problem) for problem in found]


def test_two_ports_with_the_same_folder_and_name_are_rejected_with_the_line_and_the_fix() -> None:
    [problem] = problems(application("a", adapters.File("out"), adapters.File("./out/")))
    assert "test_file_names.py:" in problem
    assert "send port 'a1': send port 'a0' writes into the same folder './out/' under the same names" in problem
    assert "name='%MessageID%-%SendPort%%SourceExtension%'" in problem


def test_a_port_is_compared_with_the_ports_of_its_own_folder_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An application may have thousands of ports."""
    resolved: list[str] = []
    resolve = shared_endpoints._folder

    def count(file: adapters.File, home: Path) -> str:
        resolved.append(file.path)
        return resolve(file, home)

    monkeypatch.setattr(shared_endpoints, "_folder", count)
    assert problems(application("a", *(adapters.File(f"out/{number}") for number in range(50)))) == []
    assert len(resolved) == 50


def test_ports_of_other_applications_are_checked_but_not_the_replaced_ports() -> None:
    assert len(problems(application("a", adapters.File("out")), application("b", adapters.File("/home/out")))) == 1
    assert problems(application("a", adapters.File("out")), application("a", adapters.File("out"))) == []


@pytest.mark.parametrize(
    ("one", "other", "is_rejected"),
    [
        ("%MessageID%.txt", "%MessageID%.txt", True),
        ("%MessageID%.txt", "%MessageID%%SourceExtension%", True),
        ("%MessageID%", "%MessageID%%SourceExtension%", True),
        ("%MessageID%-%datetime%.txt", "%MessageID%-%time%.txt", True),
        ("%datetime%-%MessageID%", "%MessageID%-%datetime%", False),
        ("%MessageID%.txt", "%MessageID%.json", False),
        ("%MessageID%-x%SourceExtension%", "%MessageID%%SourceExtension%", False),
        ("%MessageID%-%SendPort%", "%MessageID%-%SendPort%", False),
        ("%MessageID%-%SendPort%", "%MessageID%", False),
        ("%MessageID%-%SendPort%", "%MessageID%-a0", True),
        # Without the message id an existing file is never overwritten: the attempt fails.
        ("%SourceFileName%", "%SourceFileName%", False),
    ],
)
def test_file_names_that_can_be_equal_are_rejected(one: str, other: str, is_rejected: bool) -> None:
    for first, second in ((one, other), (other, one)) if "a0" not in other else ((one, other),):
        ports = application("a", adapters.File("out", name=first), adapters.File("out", name=second))
        assert bool(problems(ports)) is is_rejected


def test_ports_with_different_folders_are_accepted() -> None:
    assert problems(application("a", adapters.File("out/a"), adapters.File("out/b"))) == []
