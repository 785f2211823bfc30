"""A file has only one receive location."""

from __future__ import annotations

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from postroom import Application, adapters, pipelines
from postroom.adapters.file.names import can_match_same_name
from postroom.application.checks.shared_endpoints import shared_endpoint_problems

HOME = Path("/home")


def problems(new: Application, *deployed: Application) -> list[str]:
    return [
        problem.text for problem in shared_endpoint_problems(new.definition(), [d.definition() for d in deployed], HOME)
    ]


def application(name: str, *files: adapters.File | adapters.SparkReader) -> Application:
    app = Application(name)
    for number, file in enumerate(files):
        pipeline = pipelines.PassThrough() if isinstance(file, adapters.File) else pipelines.Rows()
        app.receive_port(f"{name}In{number}").location(f"{name}{number}", file, pipeline=pipeline)
    return app


def test_two_locations_with_the_same_files_are_rejected() -> None:
    every, json = adapters.File("in"), adapters.File("./in/", pattern="*.json")
    [problem] = problems(application("a", every, json))
    assert problem.startswith(
        "receive location 'a1': 'a0' watches the same folder './in/' for names that may be the same"
    )
    assert "('*' and '*.json')" in problem
    [problem] = problems(application("b", json), application("a", every))
    assert problem.startswith("receive location 'b0': 'a0' watches the same folder")
    [problem] = problems(application("a", every, adapters.SparkReader("csv", "in", schema="a int")))
    assert "'a1'" in problem


def test_different_folders_and_patterns_are_accepted() -> None:
    names = [adapters.File("in", pattern=pattern) for pattern in ("*.json", "*.xml", "orders-*.csv", "bills-*.csv")]
    assert problems(application("a", *names, adapters.File("in/sub"), adapters.File("/in"))) == []
    assert problems(application("a", adapters.File("in")), application("a", adapters.File("in"))) == []


def test_an_archive_that_another_location_watches_is_rejected() -> None:
    [problem] = problems(application("a", adapters.File("in", archive="done"), adapters.File("done")))
    assert problem.startswith("receive location 'a0': its archive 'done' is the folder that 'a1' watches")


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("*", "*", True),
        ("*.json", "*.json", True),
        ("*.json", "*.xml", False),
        ("a*", "*b", True),
        ("a?c", "abc", True),
        ("a?c", "ac", False),
        ("[ab].txt", "[bc].txt", True),
        ("x[!a]", "yb", False),
        ("a*b*c", "abc", True),
        ("a*b*c", "acb", False),
        ("**", "", True),
    ],
)
def test_may_meet_finds_patterns_with_a_common_name(one: str, other: str, expected: bool) -> None:
    assert can_match_same_name(one, other) is can_match_same_name(other, one) is expected


PATTERNS = st.text("ab*?", max_size=6)


@given(PATTERNS, PATTERNS, st.text("ab", max_size=5))
def test_may_meet_is_true_for_patterns_that_match_one_name(one: str, other: str, name: str) -> None:
    if fnmatchcase(name, one) and fnmatchcase(name, other):
        assert can_match_same_name(one, other)


def test_a_folder_in_which_others_can_replace_claimed_files_is_rejected(tmp_path: Path) -> None:
    def find_problems(file: adapters.File | adapters.SparkReader) -> list[str]:
        return [one.text for one in shared_endpoint_problems(application("a", file).definition(), [], tmp_path)]

    rows = adapters.SparkReader("csv", "in", schema="a int")
    assert find_problems(adapters.File("in")) == []  # the folder does not exist on this machine
    (tmp_path / "in").mkdir()
    (tmp_path / "in").chmod(0o777)
    for file in (adapters.File("in"), rows):
        [problem] = find_problems(file)
        assert problem.startswith("receive location 'a0': other accounts can write to the watched folder 'in'")
        assert "chmod +t" in problem
    assert find_problems(adapters.File("in", trusted_senders=True)) == []
    assert find_problems(adapters.File("in", private_folder="private")) == []
    (tmp_path / "in").chmod(0o1777)
    assert find_problems(adapters.File("in")) == find_problems(rows) == []
