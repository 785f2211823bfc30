"""The items of the behaviour page, and the tests that prove them.

A test proves the items that its docstring or a comment in it cites. The docstring of a module cites items for all its
tests. "SEC-07 … 10" cites a range, and "DEQ-01, 02" two items.

python -m tests.support.behaviour      # write the tests into the page
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterator
from functools import cache

from tests.support.pages import ROOT
from tests.support.parsed_modules import parse_module

PAGE = ROOT / "docs" / "reference" / "behaviour.md"
TESTS = ROOT / "tests"

_ROW = re.compile(r"^\| (?P<item>[A-Z]{2,4}-\d\d) \| (?P<text>.*?) \|(?: (?P<tests>[^|]*) \|)?$")
_HEAD = ("| item | behaviour | proved by |", "|---|---|---|")
_NOT_SUPPORTED = "*Not supported*"
_CITED = re.compile(r"\b(?P<prefix>[A-Z]{2,4})-(?P<first>\d\d)(?!\d)(?P<rest>(?:(?:, | and | … )\d\d(?!\d))*)")
_REST = re.compile(r"(?P<separator>, | and | … )(?P<number>\d\d)")


def list_items(page: str) -> dict[str, str]:
    """Return the items of the page in their order, with their texts."""
    return {row["item"]: row["text"] for row in map(_ROW.match, page.splitlines()) if row is not None}


def list_supported_items(page: str) -> list[str]:
    """Return the items of the page, without those that Postroom does not have."""
    return [item for item, text in list_items(page).items() if not text.startswith(_NOT_SUPPORTED)]


def find_cited(text: str) -> Iterator[str]:
    """Return the items that a text cites."""
    for match in _CITED.finditer(text):
        last = int(match["first"])
        yield f"{match['prefix']}-{last:02}"
        for more in _REST.finditer(match["rest"]):
            number = int(more["number"])
            for each in range(last + 1 if more["separator"] == " … " else number, number + 1):
                yield f"{match['prefix']}-{each:02}"
            last = number


@cache
def find_proofs() -> dict[str, list[str]]:
    """Return the tests of each cited item: those that cite it themselves, or otherwise the modules that do."""
    tests: dict[str, list[str]] = defaultdict(list)
    modules: dict[str, list[str]] = defaultdict(list)
    for path in sorted(TESTS.rglob("test_*.py")):
        lines = path.read_text(encoding="utf-8").splitlines()
        module = parse_module(path)
        name = path.relative_to(TESTS).as_posix()
        for item in dict.fromkeys(find_cited(ast.get_docstring(module) or "")):
            modules[item].append(name)
        for node in ast.walk(module):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                text = "\n".join(lines[node.lineno - 1 : node.end_lineno])
                for item in dict.fromkeys(find_cited(text)):
                    tests[item].append(f"{name}::{node.name}")
    return modules | tests


def format_page(page: str, proofs: dict[str, list[str]]) -> str:
    """Return the page with the first test of each item, and how many others there are."""

    def format_row(line: str) -> str:
        row = _ROW.match(line)
        if row is None:
            return line
        if row["text"].startswith(_NOT_SUPPORTED):
            return f"| {row['item']} | {row['text']} | – |"
        first, *others = proofs.get(row["item"], ["no test"])
        more = f" and {len(others)} more" if others else ""
        return f"| {row['item']} | {row['text']} | `{first}`{more} |"

    return "\n".join(map(format_row, page.splitlines())) + "\n"


if __name__ == "__main__":
    text = PAGE.read_text(encoding="utf-8").replace("| item | behaviour |\n|---|---|\n", "\n".join(_HEAD) + "\n")
    PAGE.write_text(format_page(text, find_proofs()), encoding="utf-8")
