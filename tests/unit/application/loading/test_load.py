"""Loading of application files, and their problems."""

from __future__ import annotations

import sys
from pathlib import Path
from textwrap import dedent

import pytest

from postroom.application import load
from postroom.application.loading.load import read
from postroom.errors import BadFilter, DefinitionRefused, NotFound
from postroom.properties import Property

HEAD = """\
from decimal import Decimal
from postroom import BTS, Application, Property, Retry, adapters, pipelines
Region = Property("Orders.Region", str)
Total = Property("Orders.Total", Decimal)
app = Application("orders")
app.property(Region, Total)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "app.py"


def load_problems(file: Path, body: str, *, head: str = HEAD) -> list[tuple[int, str]]:
    """Load a file of ``head`` and ``body`` and return its problems. Line 1 is the first of ``body``."""
    file.write_text(head + dedent(body))
    with pytest.raises(DefinitionRefused) as caught:
        load(file)
    assert {problem.file for problem in caught.value.problems} == {str(file)}
    return [(problem.line - head.count("\n"), problem.text) for problem in caught.value.problems]


def lines(problems: list[tuple[int, str]]) -> list[int]:
    return [line for line, _ in problems]


def test_every_problem_of_a_file_is_listed_with_its_line(file: Path) -> None:
    problems = load_problems(
        file,
        """\
        app.send_port("One", adapters.File("one"), filter=Total >= "x")
        app.send_port("Two", adapters.File("two"), filter=Property("Orders.Nobody", str) == "x")
        app.send_port("Three", adapters.File("three"))
        app.send_port("Three", adapters.File("three"))
        app.receive_port("In").location("drop", adapters.File("in", pattern="*.[js"))
        app.send_port("Four", adapters.File("four"), host="Nowhere", retry=Retry(count=-1))
        app.send_port("Five", adapters.File("five"), filter="Region == 5")
        """,
    )
    assert lines(problems) == [1, 2, 4, 5, 6, 6, 7]


def test_several_wrong_comparisons_in_one_statement_are_all_reported(file: Path) -> None:
    problems = load_problems(
        file,
        """\
        app.send_port(
            "One",
            adapters.Null(),
            filter=(Total >= "x")
            | (Region == 5) & (Region == "EU")
            | (Region == None),
        )
        for wrong in (1, 2):
            app.send_port(f"Loop{wrong}", adapters.Null(), filter=Region == wrong)
        """,
    )
    assert lines(problems) == [4, 5, 6, 9, 9]
    assert "Orders.Total" in problems[0][1]


def test_a_wrong_comparison_outside_of_a_load_raises_at_once(file: Path) -> None:
    load_problems(file, "filter = Region == 5")
    with pytest.raises(BadFilter):
        assert Property("Orders.Region", str) == 5


@pytest.mark.parametrize(
    ("failing", "expected"),
    [
        ('Bad = Property("NoNamespace", str)', "NoNamespace"),
        ('app.send_port("Two", adapters.File(5))', "adapters.File cannot be created"),
        ('app.send_port("Two", adapters.Null(), filter=(Total > 5) and (Region == "EU"))', "and"),
        ('pipelines.Json(promote={Region: "region"}, nonsense=1)', "nonsense"),
        (
            "pipelines.Receive(disassemble=pipelines.Json())",
            "Receive: disassemble: write a list of components, such as [Json(...)].",
        ),
        ('app.host("Fast", speed=5)', "speed"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("unheard_of", "unheard_of"),
    ],
)
def test_a_file_runs_until_its_first_exception(file: Path, failing: str, expected: str) -> None:
    """Declarations after the exception are not reported as missing."""
    body = f"""\
    app.send_port("One", adapters.Null(), filter=Total >= "x", host="Later")
    {failing}
    app.host("Later")
    1 / 0
    """
    problems = load_problems(file, body)
    assert lines(problems) == [1, 2]
    assert expected in problems[1][1]
    assert read(file).definition is None


def test_the_code_of_a_file_runs_once(file: Path) -> None:
    (file.parent / "log.py").write_text("entries = []\n")
    body = """\
    import log
    log.entries.append(1)
    @property
    def later(): ...
    class Scope:
        seen = len(log.entries)
    assert (Scope.seen, globals()["__name__"], __spec__.name) == (1, __name__, __name__)
    """
    file.write_text(HEAD + dedent(body))
    assert load(file).name == "orders"


def test_a_file_may_have_any_suffix(file: Path) -> None:
    file = file.with_suffix(".orders")
    file.write_text(HEAD)
    assert load(file).name == "orders"


def test_every_wrong_argument_of_a_pipeline_is_reported(file: Path) -> None:
    problems = load_problems(file, "pipelines.Json(promote=5, message_type=6)\n")
    assert lines(problems) == [1, 1]
    assert "http" not in str(problems)


@pytest.mark.parametrize(
    ("source", "line"),
    [("x = (1\n", 1), ("x = 1\nreturn x\n", 2), ("x = 1\nfrom __future__ import annotations\n", 2)],
)
def test_a_file_that_is_not_python_is_rejected_with_the_line(file: Path, source: str, line: int) -> None:
    assert lines(load_problems(file, source, head="")) == [line]


def test_a_file_that_is_not_text_is_rejected(file: Path) -> None:
    for content in (b"x = 'a\0b'", b"x = '\xff'"):
        file.write_bytes(content)
        with pytest.raises(DefinitionRefused):
            load(file)


def test_an_exception_in_a_function_is_reported_with_its_line(file: Path) -> None:
    problems = load_problems(
        file,
        """\
        def declare():
            app.send_port("One", adapters.Null(), filter=Region == "EU")
            raise RuntimeError("no more")

        declare()
        """,
    )
    assert problems == [(3, "RuntimeError: no more")]


def test_sys_exit_in_a_file_is_a_problem(file: Path) -> None:
    problems = load_problems(file, "import sys\nsys.exit(3)\n")
    assert lines(problems) == [2]


@pytest.mark.parametrize("body", ["", "x = 1\n"])
def test_a_file_without_an_application_is_rejected(file: Path, body: str) -> None:
    assert "no application" in load_problems(file, body, head="")[0][1]


def test_a_file_with_two_applications_is_rejected(file: Path) -> None:
    problems = load_problems(file, 'same = app\nother = Application("other")\n')
    assert lines(problems) == [2]
    assert "'other'" in problems[0][1]


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No such file"):
        load(tmp_path / "app.py")
    with pytest.raises(NotFound, match="directory"):
        load(tmp_path)


@pytest.mark.parametrize(
    "statement", ["from schemas import Kind", "from .schemas import Kind", "from . import schemas"]
)
def test_modules_next_to_the_file_can_be_imported_and_are_unloaded(file: Path, statement: str) -> None:
    (file.parent / "schemas.py").write_text(
        'from postroom import Property\nfrom parts.more import NAME\nKind = Property(f"Orders.{NAME}", str)\n'
    )
    (file.parent / "parts").mkdir()
    (file.parent / "parts" / "more.py").write_text('NAME = "Kind"\n')
    file.write_text(f"{HEAD}{statement}\napp.property({'schemas.' if 'import schemas' in statement else ''}Kind)\n")
    modules, path = set(sys.modules), list(sys.path)
    assert [prop.name for prop in load(file).properties] == ["Kind", "Region", "Total"]
    assert sys.path == path
    assert set(sys.modules) == modules
    assert not list(file.parent.rglob("__pycache__"))
    # A changed module is loaded again.
    (file.parent / "parts" / "more.py").write_text('NAME = "Sort"\n')
    assert [prop.name for prop in load(file).properties] == ["Region", "Sort", "Total"]


def test_a_failed_load_restores_the_path_and_keeps_modules_from_elsewhere(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "this_is_elsewhere", raising=False)
    elsewhere = file.parent / "lib"
    elsewhere.mkdir()
    (elsewhere / "this_is_elsewhere.py").write_text("")
    monkeypatch.syspath_prepend(str(elsewhere))
    path = list(sys.path)
    load_problems(file, "import sys\nimport this_is_elsewhere\nsys.path.append('/nowhere')\nraise KeyError('x')\n")
    assert sys.path == path
    assert "this_is_elsewhere" in sys.modules


def test_a_problem_in_an_imported_module_is_reported_with_its_file(file: Path) -> None:
    helper = file.parent / "schemas.py"
    for source, line in (("x = 1\n1 / 0\n", 2), ("x = (\n", 1)):
        helper.write_text(source)
        file.write_text(f"{HEAD}from schemas import Kind\napp.property(Kind)\n")
        with pytest.raises(DefinitionRefused) as caught:
            load(file)
        assert [(problem.file, problem.line) for problem in caught.value.problems] == [(str(helper), line)]


def test_the_file_is_an_ordinary_module(file: Path) -> None:
    file.write_text(
        '"""Orders."""\n'
        "from __future__ import annotations\n"
        f"{HEAD}"
        '"just a text"\n'
        "def later(x: NotDefinedAnywhere) -> None: ...\n"
        'assert __doc__ == "Orders."\n'
        f'assert __file__ == {str(file)!r} and __name__ != "__main__"\n'
    )
    assert load(file).name == "orders"


def test_the_valid_subset_of_an_application_is_returned(file: Path) -> None:
    body = """\
    app.host("Odd", trusted="perhaps")
    app.receive_port("In").location("drop", adapters.File("in"), pipeline=pipelines.Json(promote={Count: "n"}), host=7)
    app.receive_port("Odds").location("odd", adapters.File("odd"), host="Odd")
    app.send_port("Bad", adapters.File("out"), priority=11)
    app.send_port("Counted", adapters.File("out"), filter=Count == 1)
    app.send_port_group("All", ["Bad", "Counted"])
    app.send_port_group("Some", ["Counted"])
    """
    file.write_text(HEAD + 'Count = Property("Orders.Count", int)\n' + dedent(body))
    loaded = read(file)
    assert len(loaded.problems) == 3
    subset = loaded.definition
    assert subset is not None
    assert [(port.name, len(port.locations)) for port in subset.receive_ports] == [("In", 0), ("Odds", 0)]
    assert [port.name for port in subset.send_ports] == ["Counted"]
    assert [group.name for group in subset.send_port_groups] == ["Some"]
    assert "Orders.Count" in [prop.dotted_name for prop in subset.properties]


def test_an_invalid_application_has_no_valid_subset(file: Path) -> None:
    file.write_text('from postroom import Application\napp = Application("a/b\\n")\n')
    assert read(file).definition is None
