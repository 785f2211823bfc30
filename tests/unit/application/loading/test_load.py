"""Applications from files, good and bad."""

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


def refused(file: Path, body: str, *, head: str = HEAD) -> list[tuple[int, str]]:
    """The problems of a file that is ``head`` and ``body``, with lines counted from the body's first."""
    file.write_text(head + dedent(body))
    with pytest.raises(DefinitionRefused) as caught:
        load(file)
    assert {problem.file for problem in caught.value.problems} == {str(file)}
    return [(problem.line - head.count("\n"), problem.text) for problem in caught.value.problems]


def lines(problems: list[tuple[int, str]]) -> list[int]:
    return [line for line, _ in problems]


def test_every_problem_of_a_file_is_listed_with_its_line(file: Path) -> None:
    problems = refused(
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


def test_several_wrong_comparisons_in_one_statement_are_all_told(file: Path) -> None:
    problems = refused(
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


def test_outside_of_a_load_a_wrong_comparison_raises_at_once(file: Path) -> None:
    refused(file, "filter = Region == 5")
    with pytest.raises(BadFilter):
        assert Property("Orders.Region", str) == 5


@pytest.mark.parametrize(
    ("failing", "said"),
    [
        ('Bad = Property("NoNamespace", str)', "NoNamespace"),
        ('app.send_port("Two", adapters.File(5))', "adapters.File cannot be made"),
        ('app.send_port("Two", adapters.Null(), filter=(Total > 5) and (Region == "EU"))', "and"),
        ('pipelines.Json(promote={Region: "region"}, nonsense=1)', "nonsense"),
        ('app.host("Fast", threads=5)', "threads"),
        ("1 / 0", "ZeroDivisionError: division by zero"),
        ("unheard_of", "unheard_of"),
    ],
)
def test_a_file_runs_to_its_first_exception(file: Path, failing: str, said: str) -> None:
    """As any module does. What only the rest of the file would have declared is not missed."""
    body = f"""\
    app.send_port("One", adapters.Null(), filter=Total >= "x", host="Later")
    {failing}
    app.host("Later")
    1 / 0
    """
    problems = refused(file, body)
    assert lines(problems) == [1, 2]
    assert said in problems[1][1]
    assert read(file).definition is None


def test_nothing_of_a_module_is_run_twice(file: Path) -> None:
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


def test_every_wrong_argument_of_a_pipeline_is_told(file: Path) -> None:
    problems = refused(file, "pipelines.Json(promote=5, message_type=6)\n")
    assert lines(problems) == [1, 1]
    assert "http" not in str(problems)


@pytest.mark.parametrize(
    ("source", "line"),
    [("x = (1\n", 1), ("x = 1\nreturn x\n", 2), ("x = 1\nfrom __future__ import annotations\n", 2)],
)
def test_a_file_that_is_not_python_is_refused_with_the_line(file: Path, source: str, line: int) -> None:
    assert lines(refused(file, source, head="")) == [line]


def test_a_file_that_is_not_even_text_is_refused(file: Path) -> None:
    for content in (b"x = 'a\0b'", b"x = '\xff'"):
        file.write_bytes(content)
        with pytest.raises(DefinitionRefused):
            load(file)


def test_an_exception_in_a_function_of_the_file_is_told_where_it_happened(file: Path) -> None:
    problems = refused(
        file,
        """\
        def declare():
            app.send_port("One", adapters.Null(), filter=Region == "EU")
            raise RuntimeError("no more")

        declare()
        """,
    )
    assert problems == [(3, "RuntimeError: no more")]


def test_a_file_that_ends_the_program_does_not_end_ours(file: Path) -> None:
    problems = refused(file, "import sys\nsys.exit(3)\n")
    assert lines(problems) == [2]


@pytest.mark.parametrize("body", ["", "x = 1\n"])
def test_a_file_without_an_application_is_refused(file: Path, body: str) -> None:
    assert "no application" in refused(file, body, head="")[0][1]


def test_a_file_with_two_applications_is_refused(file: Path) -> None:
    problems = refused(file, 'same = app\nother = Application("other")\n')
    assert lines(problems) == [2]
    assert "'other'" in problems[0][1]


def test_a_file_that_is_not_there_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="No such file"):
        load(tmp_path / "app.py")
    with pytest.raises(NotFound, match="directory"):
        load(tmp_path)


@pytest.mark.parametrize(
    "statement", ["from schemas import Kind", "from .schemas import Kind", "from . import schemas"]
)
def test_modules_beside_the_file_can_be_imported_and_leave_no_trace(file: Path, statement: str) -> None:
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
    # What is beside another file under the same name is another module.
    (file.parent / "parts" / "more.py").write_text('NAME = "Sort"\n')
    assert [prop.name for prop in load(file).properties] == ["Region", "Sort", "Total"]


def test_modules_from_elsewhere_stay_loaded_and_a_broken_run_leaves_no_trace_either(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "this_is_elsewhere", raising=False)
    elsewhere = file.parent / "lib"
    elsewhere.mkdir()
    (elsewhere / "this_is_elsewhere.py").write_text("")
    monkeypatch.syspath_prepend(str(elsewhere))
    path = list(sys.path)
    refused(file, "import sys\nimport this_is_elsewhere\nsys.path.append('/nowhere')\nraise KeyError('x')\n")
    assert sys.path == path
    assert "this_is_elsewhere" in sys.modules


def test_a_mistake_in_a_module_beside_the_file_is_told_there(file: Path) -> None:
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


def test_the_part_without_problems_is_there_to_be_compared(file: Path) -> None:
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
    part = loaded.definition
    assert part is not None
    assert [(port.name, len(port.locations)) for port in part.receive_ports] == [("In", 0), ("Odds", 0)]
    assert [port.name for port in part.send_ports] == ["Counted"]
    assert [group.name for group in part.send_port_groups] == ["Some"]
    assert "Orders.Count" in [prop.dotted for prop in part.properties]


def test_of_an_application_that_is_wrong_as_a_whole_there_is_no_such_part(file: Path) -> None:
    file.write_text('from postroom import Application\napp = Application("a/b\\n")\n')
    assert read(file).definition is None
