"""The code that a function reaches: its own, and what it calls and reads in the files of its application."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from postroom.application.loading.load import load_orchestrations
from postroom.pipelines.shipping.reached_code import ReachedCode, find_reached_code

APPLICATION = """
import math
import rules
from postroom import Application, Message, adapters, maps, orchestrations
from prices import *
from rules import Discount as Rebate
from tax import rate

app = Application("shop")
warehouse = app.send_port("Warehouse", adapters.File("out"))
LIMIT = 10 * rules.FACTOR
OTHER = 1
TABLE = {}
TABLE["a"] = OTHER


def write_label(order: Message) -> bytes:
    return b"label"


to_label = maps.Python(write_label, source="order", target="label")


def check(order: Message) -> bool:
    '''Check an order.'''
    return len(order.data) < LIMIT and rules.is_allowed(order)


@app.orchestration(name="packs")
async def pack(order: Message) -> None:
    await orchestrations.send(order, to="Warehouse")


@app.orchestration()
async def audit(order: Message) -> None:
    await orchestrations.send(order, to="Audit")


@app.orchestration(maps=[to_label], state="started")
async def ship(order: Message) -> None:
    if check(order):
        await orchestrations.send(order, to=warehouse)
    print(TABLE, Rebate(), list_price, math.floor(rate))
    await pack(order)
    await orchestrations.start(audit, order)


@app.orchestration()
async def unrelated(order: Message) -> None:
    from late import answer

    await orchestrations.send(Message.of(answer), to=warehouse)
"""
FILES = {
    "app.py": APPLICATION,
    "rules.py": """
        FACTOR = 2
        UNUSED = 1

        def is_allowed(order):
            return True

        class Discount:
            percent = 5
        """,
    "prices.py": "list_price = 3\nother_price = 4\n",
    "tax/__init__.py": "from .rates import rate\n",
    "tax/rates.py": "rate = 0.19\nold_rate = 0.16\n",
    "late.py": "from rules import UNUSED\nanswer = b'42'\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(dedent(text))
    return tmp_path


def read(folder: Path, name: str = "ship") -> ReachedCode:
    orchestrations = load_orchestrations(folder / "app.py")
    found = find_reached_code(orchestrations[name, 1].function, folder)
    assert found is not None
    return found


@contextmanager
def changed(folder: Path, file: str, old: str, new: str) -> Iterator[None]:
    text = (folder / file).read_text()
    assert old in text
    (folder / file).write_text(text.replace(old, new, 1))
    try:
        yield
    finally:
        (folder / file).write_text(text)


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("app.py", "if check(order):", "if not check(order):"),
        ("app.py", "len(order.data) <", "len(order.data) <="),
        ("app.py", "LIMIT = 10", "LIMIT = 11"),
        ("app.py", "OTHER = 1", "OTHER = 2"),
        ("app.py", 'TABLE["a"] = OTHER', 'TABLE["b"] = OTHER'),
        ("app.py", 'return b"label"', 'return b"other"'),
        ("app.py", 'send_port("Warehouse"', 'send_port("Store"'),
        ("app.py", 'await orchestrations.send(order, to="Warehouse")', "return"),
        ("app.py", "start(audit, order)", "start(pack, order)"),
        ("rules.py", "FACTOR = 2", "FACTOR = 3"),
        ("rules.py", "return True", "return False"),
        ("rules.py", "percent = 5", "percent = 6"),
        ("prices.py", "list_price = 3", "list_price = 4"),
        ("tax/rates.py", "rate = 0.19", "rate = 0.2"),
        ("app.py", "maps=[to_label]", "maps=[to_label], journal_limits=orchestrations.JournalLimits(events=10)"),
    ],
)
def test_a_change_of_what_a_function_reaches_changes_its_digest(folder: Path, file: str, old: str, new: str) -> None:
    before = read(folder).digest
    with changed(folder, file, old, new):
        assert read(folder).digest != before
    assert read(folder).digest == before


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [
        ("app.py", 'to="Audit"', 'to="Elsewhere"'),
        ("app.py", "Message.of(answer)", "order"),
        ("app.py", "\n\n\ndef check", "\n\n# A comment.\n\n\n\ndef check"),
        ("app.py", "Check an order.", "Check an order, or not."),
        ("app.py", 'adapters.File("out")', 'adapters.File("elsewhere")'),
        ("app.py", 'state="started"', 'state="stopped"'),
        ("app.py", 'name="packs"', 'name="packs", version=2'),
        ("app.py", "adapters, maps", "adapters, client, maps"),
        ("rules.py", "UNUSED = 1", "UNUSED = 2"),
        ("prices.py", "other_price = 4", "other_price = 5"),
        ("tax/rates.py", "old_rate = 0.16", "old_rate = 0.15"),
        ("late.py", "42", "43"),
    ],
)
def test_a_change_elsewhere_does_not_change_it(folder: Path, file: str, old: str, new: str) -> None:
    before = read(folder).digest
    with changed(folder, file, old, new):
        assert read(folder).digest == before


@pytest.mark.parametrize(("file", "old"), [("late.py", "42"), ("rules.py", "UNUSED = 1")])
def test_a_module_that_is_imported_inside_a_function_counts_whole(folder: Path, file: str, old: str) -> None:
    before = read(folder, "unrelated").digest
    with changed(folder, file, old, old + "0" if old == "42" else "UNUSED = 10"):
        assert read(folder, "unrelated").digest != before


def test_the_located_digest_changes_with_the_lines(folder: Path) -> None:
    before = read(folder)
    with changed(folder, "app.py", "from late import answer", "from late import answer  # a comment\n"):
        assert read(folder).located_digest == before.located_digest
    with changed(folder, "app.py", "import math\n", "import math\n\n"):
        assert read(folder).digest == before.digest
        assert read(folder).located_digest != before.located_digest


def test_a_function_inside_another_one_is_not_found(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(
        dedent("""
        from postroom import Application
        app = Application("shop")

        def declare(name):
            async def work(order):
                pass
            app.orchestration(name=name)(work)

        declare("work")
        """)
    )
    [orchestration] = load_orchestrations(tmp_path / "app.py").values()
    assert find_reached_code(orchestration.function, tmp_path) is None
    assert find_reached_code(dedent, tmp_path) is None
    assert find_reached_code(print, tmp_path) is None


def test_two_functions_of_the_same_name_are_told_apart(tmp_path: Path) -> None:
    text = """
from postroom import Application, Message, orchestrations
app = Application("shop")

@app.orchestration()
async def work(order: Message) -> None:
    await orchestrations.send(order)

@app.orchestration(version=2)
async def work(order: Message) -> None:
    await orchestrations.delay(1)
"""
    (tmp_path / "app.py").write_text(text)

    def list_digests() -> list[str]:
        found = load_orchestrations(tmp_path / "app.py").values()
        reached = [find_reached_code(one.function, tmp_path) for one in found]
        return [one.digest for one in reached if one is not None]

    first, second = list_digests()
    with changed(tmp_path, "app.py", "delay(1)", "delay(2)"):
        assert list_digests()[0] == first
        assert list_digests()[1] != second
