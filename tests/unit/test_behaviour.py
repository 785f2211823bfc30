"""Each item of the behaviour page is proved by a test, and the page names it."""

from __future__ import annotations

from tests.support.behaviour import PAGE, find_cited, find_proofs, format_page, list_items, list_supported_items
from tests.support.parsed_modules import READS_MODULES

pytestmark = READS_MODULES


def test_the_page_names_the_tests_that_prove_its_items() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == format_page(page, find_proofs()), "run: python -m tests.support.behaviour"


def test_each_item_has_a_test() -> None:
    items = list_supported_items(PAGE.read_text(encoding="utf-8"))
    assert len(items) > 300
    assert sorted(set(items) - find_proofs().keys()) == []


def test_an_item_that_is_not_supported_is_not_counted() -> None:
    page = "| XX-36 | A wait is a wait | `a.py` |\n| XX-37 | *Not supported*: settings | – |"
    assert list_supported_items(page) == ["XX-36"]
    assert format_page(page, {"XX-36": ["a.py"]}) == f"{page}\n"


def test_tests_cite_items_that_exist() -> None:
    items = list_items(PAGE.read_text(encoding="utf-8"))
    chapters = {item.partition("-")[0] for item in items}
    cited = {item for item in find_proofs() if item.partition("-")[0] in chapters}
    assert sorted(cited - set(items)) == []


def test_ranges_and_lists_of_items_are_read() -> None:
    assert list(find_cited("XX-07 … 09, YY-01, 03 and 04 (ISO-8859)")) == [
        "XX-07",
        "XX-08",
        "XX-09",
        "YY-01",
        "YY-03",
        "YY-04",
    ]
