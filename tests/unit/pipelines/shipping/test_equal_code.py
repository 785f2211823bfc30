"""A location is changed by its shipped files only if its components use what changed in them."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest

from postroom.pipelines.shipping.equal_code import runs_equal_code
from postroom.pipelines.shipping.shipped_files import ShippedFiles

APP = '''
"""The application."""
import re
from postroom import Application, Property, adapters, pipelines

LIMIT = 10
OTHER_LIMIT = 20
Region = Property("Orders.Region", str)

def shorten(text):
    return re.sub("x", "", text)[:LIMIT]

def check(message):
    """Check a message."""
    return shorten(message)

def check_other(message):
    return message[:OTHER_LIMIT]

app = Application("orders")
orders = app.receive_port("OrdersIn")
orders.location("drop", adapters.File("in"), pipeline=pipelines.Receive(decode=[check]))
app.send_port("Europe", adapters.File("out"), filter=Region == "EU")
'''


def stored(name: str = "check", **files: str) -> dict[str, Any]:
    contents = {f"{file}.py": textwrap.dedent(text).encode() for file, text in files.items()}
    component = {"file": "app.py", "name": name}
    return {"kind": "receive", "decoders": [component], "files": ShippedFiles(contents).to_stored()}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ('filter=Region == "EU"', 'filter=Region == "US"'),
        ('adapters.File("out")', 'adapters.File(re.sub("a", "b", "out"))'),
        ('app = Application("orders")', '# a comment\n\napp = Application("orders")'),
        ('app.receive_port("OrdersIn")', 'app.receive_port("OrdersIn", route_failures=True)'),
        ("OTHER_LIMIT = 20", "OTHER_LIMIT = 30"),
        ("message[:OTHER_LIMIT]", "message"),
        ('Region = Property("Orders.Region", str)', 'Zone = Property("Orders.Zone", str)'),
        ("import Application, ", "import BTS, Application, "),
        ('"""The application."""', '"""The orders."""'),
        ("LIMIT = 10", "LIMIT  =  10"),
    ],
)
def test_other_declarations_in_the_file_do_not_change_a_component(before: str, after: str) -> None:
    assert before in APP
    assert runs_equal_code(stored(app=APP), stored(app=APP.replace(before, after)))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return shorten(message)", "return message"),
        ("[:LIMIT]", "[:5]"),
        ("LIMIT = 10\n", "LIMIT = 11\n"),
        ("import re\n", "import re as regex\n"),
        ("import re\n", "import re\nimport os\n"),
        ("LIMIT = 10\n", "LIMIT = 10\nprint('loaded')\n"),
        ("LIMIT = 10\n", "LIMIT = 10\nCACHE = dict()\n"),
        ("LIMIT = 10\n", "LIMIT = 10\nif True:\n    LIMIT = 12\n"),
        ("def check(message):", "@staticmethod\ndef check(message):"),
        ("OTHER_LIMIT = 20", "OTHER_LIMIT = 30; LIMIT += 1"),
        ('app = Application("orders")', 'app = Application("orders")\nre.purge()'),
    ],
)
def test_what_a_component_uses_or_may_be_affected_by_changes_it(before: str, after: str) -> None:
    assert before in APP
    assert not runs_equal_code(stored(app=APP), stored(app=APP.replace(before, after)))


def test_a_component_that_looks_up_names_depends_on_the_whole_file() -> None:
    dynamic = APP.replace("return shorten(message)", 'return globals()["shorten"](message)')
    changed = dynamic.replace("OTHER_LIMIT = 20", "OTHER_LIMIT = 30")
    assert not runs_equal_code(stored(app=dynamic), stored(app=changed))


def test_a_file_that_other_files_import_counts_as_a_whole() -> None:
    other = "import app\n\nVALUE = app.OTHER_LIMIT\n"
    changed = APP.replace("OTHER_LIMIT = 20", "OTHER_LIMIT = 30")
    assert not runs_equal_code(stored(app=APP, other=other), stored(app=changed, other=other))


def test_an_imported_file_counts_as_a_whole_but_not_its_comments() -> None:
    helper = "def helper():\n    return 1\n"
    assert runs_equal_code(stored(app=APP, helper=helper), stored(app=APP, helper=f"# why\n{helper}"))
    assert not runs_equal_code(stored(app=APP, helper=helper), stored(app=APP, helper=f"{helper}\nx = 1\n"))


def test_added_and_removed_files_are_changes() -> None:
    assert not runs_equal_code(stored(app=APP), stored(app=APP, helper=""))
    assert not runs_equal_code(stored(app=APP, helper=""), stored(app=APP))


def test_a_file_that_is_not_python_is_compared_by_its_bytes() -> None:
    before, after = stored(app=APP), stored(app=APP)
    before["files"] |= ShippedFiles({"a.xsd": b"<a/>"}).to_stored()
    after["files"] |= ShippedFiles({"a.xsd": b"<b/>"}).to_stored()
    assert not runs_equal_code(before, after)


def test_a_file_that_cannot_be_parsed_is_compared_by_its_bytes() -> None:
    assert not runs_equal_code(stored(app="def ("), stored(app="def (("))


def test_a_class_is_used_by_its_name() -> None:
    source = (
        "from postroom.pipelines import components\n"
        "class Check(components.Decoder):\n    limit = 1\n"
        "class Other(components.Decoder):\n    limit = 2\n"
    )
    assert runs_equal_code(stored("Check", app=source), stored("Check", app=source.replace("= 2", "= 3")))
    assert not runs_equal_code(stored("Check", app=source), stored("Check", app=source.replace("= 1", "= 3")))
