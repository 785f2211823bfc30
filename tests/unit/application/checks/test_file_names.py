"""Send ports that write into one folder must be able to tell their files apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from postroom import Application, adapters
from postroom.application.checks.shared_endpoints import shared_endpoint_problems

HOME = Path("/home")


def declared(name: str, *ports: adapters.File) -> Application:
    app = Application(name)
    for number, adapter in enumerate(ports):
        app.send_port(f"{name}{number}", adapter)
    return app


def problems(new: Application, *deployed: Application) -> list[str]:
    found = shared_endpoint_problems(new.definition(), [one.definition() for one in deployed], HOME)
    return [str(problem) for problem in found]


def test_one_folder_and_one_name_are_refused_with_the_place_and_what_to_write() -> None:
    [said] = problems(declared("a", adapters.File("out"), adapters.File("./out/")))
    assert "test_file_names.py:" in said
    assert "send port 'a1': send port 'a0' writes into the same folder './out/' under the same names" in said
    assert "name='%MessageID%-%SendPort%%SourceExtension%'" in said


def test_ports_of_other_applications_count_but_not_those_that_are_replaced() -> None:
    assert len(problems(declared("a", adapters.File("out")), declared("b", adapters.File("/home/out")))) == 1
    assert problems(declared("a", adapters.File("out")), declared("a", adapters.File("out"))) == []


@pytest.mark.parametrize(
    ("one", "other", "refused"),
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
        # Without the message's id a file that is there is never taken for one's own: the attempt fails.
        ("%SourceFileName%", "%SourceFileName%", False),
    ],
)
def test_names_that_can_be_the_same_are_refused(one: str, other: str, refused: bool) -> None:
    for first, second in ((one, other), (other, one)) if "a0" not in other else ((one, other),):
        ports = declared("a", adapters.File("out", name=first), adapters.File("out", name=second))
        assert bool(problems(ports)) is refused


def test_each_may_have_its_own_folder() -> None:
    assert problems(declared("a", adapters.File("out/a"), adapters.File("out/b"))) == []
