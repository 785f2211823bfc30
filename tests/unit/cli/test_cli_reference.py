"""docs/reference/cli.md matches the help of the commands."""

from __future__ import annotations

from tests.support.cli_reference import PAGE, build_reference


def test_the_reference_is_current() -> None:
    assert PAGE.read_text(encoding="utf-8") == build_reference(), "run: python -m tests.support.cli_reference"


def test_the_reference_has_every_command_and_an_example_for_each() -> None:
    text = build_reference()
    for command in ("postroom plan", "postroom instance resume", "postroom host run", "postroom check"):
        assert f"# {command}\n" in text
        assert f"$ {command}" in text
