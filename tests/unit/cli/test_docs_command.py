"""`postroom docs` lists and shows the pages that the package contains."""

from __future__ import annotations

import json

import pytest

from postroom.cli.main import main
from tests.support.pages import ROOT


def test_the_pages_are_listed_with_their_titles(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "-o", "json"]) == 0
    listed = {row["page"]: row["title"] for row in json.loads(capsys.readouterr().out)}
    assert listed["how-to/monitor"] == "Monitor"
    assert set(listed) == {
        str(page.relative_to(ROOT / "docs").with_suffix("")) for page in (ROOT / "docs").rglob("*.md")
    }


@pytest.mark.parametrize("name", ["how-to/monitor", "monitor", "how-to/monitor.md"])
def test_a_page_is_shown(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", name]) == 0
    assert capsys.readouterr().out == (ROOT / "docs" / "how-to" / "monitor.md").read_text()


def test_a_page_that_is_unknown_or_ambiguous_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["docs", "how-to/monitors"]) == 4
    assert "how-to/monitor" in capsys.readouterr().err
    assert main(["docs", "README"]) == 4
    assert "tutorial/README" in capsys.readouterr().err


def test_the_help_names_no_file_that_only_a_clone_has(capsys: pytest.CaptureFixture[str]) -> None:
    for words in ([], ["up"], ["plan"], ["apply"]):
        main([*words, "--help"])
        assert "examples/" not in capsys.readouterr().out
