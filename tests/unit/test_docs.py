"""The documentation is correct: links resolve, examples run, commands and options exist."""

from __future__ import annotations

import ast
import inspect
import re
import shlex
import uuid
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args

import click
import pytest
from pydantic import BaseModel

import postroom
from postroom import Application, Client, orchestrations, pipelines
from postroom.adapters.dynamic.definition import Dynamic
from postroom.adapters.kinds import ADAPTERS
from postroom.agent.direct.direct_batch import Published
from postroom.agent.streaming.documents import ALWAYS_PROMOTED, build_initial_context
from postroom.agent.streaming.interchange import Interchange
from postroom.cli.main import cli
from postroom.client.content import Content
from postroom.client.subscription import Received, Subscription, SubscriptionSettings
from postroom.message import Bytes
from postroom.orchestrations import Correlation, JournalLimits, PartnerPort
from postroom.ports.receive_locations import ReceiveLocation
from postroom.system_properties import BTS
from tests.support.pages import (
    PROPERTIES,
    ROOT,
    SET_BY,
    Block,
    anchors,
    blocks,
    links,
    pages,
    prose,
    system_property_table,
    with_generated,
)

EXAMPLE = ROOT / "examples" / "orders" / "app.py"
EXPLANATION = ROOT / "docs" / "explanation"
ARCHITECTURE = EXPLANATION / "architecture.md"
REFERENCE = ROOT / "docs" / "reference"
BEHAVIOUR = REFERENCE / "behaviour.md"
DECISIONS = EXPLANATION / "decisions"

#: Paths of a particular machine. Those of the system account and the socket folders belong to the product.
_MACHINE_PATHS = re.compile(r"/(?:work|home|Users|opt|mnt)/\w|/tmp/(?!postroom)|\.\./shared|localhost:\d")

#: Programs of the reader's shell. Commands of Postroom and targets of make are looked up.
_TOOLS = {
    "cat",
    "cd",
    "cp",
    "createdb",
    "touch",
    "createuser",
    "curl",
    "git",
    "kill",
    "ls",
    "mkdir",
    "mv",
    "pg_basebackup",
    "pg_dump",
    "pg_restore",
}
_TOOLS |= {
    ".",
    "pg_dumpall",
    "pip",
    "printf",
    "psql",
    "python",
    "python3",
    "rm",
    "sleep",
    "tail",
    ".venv/bin/pip",
    "systemctl",
}

_ITEM = r"(?:ACC|ACK|CTX|DEQ|FLT|FMR|HST|INS|MSG|NRF|ORC|ORS|PRED|PUB|RCV|REF|RR|SEC|SND|SPT|SUB|THR|TYP)-\d+"


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_links_resolve(page: Path) -> None:
    broken = []
    for line, target in links(page):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(f"{page.name}:{line}: {target}")
    assert not broken


@pytest.mark.parametrize("page", pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_no_page_contains_a_machine_path(page: Path) -> None:
    found = _MACHINE_PATHS.search(page.read_text(encoding="utf-8"))
    assert found is None, f"{page.name} mentions {found.group()!r}"


@pytest.mark.parametrize(
    "page", [page for page in pages() if blocks(page, "python")], ids=lambda page: str(page.relative_to(ROOT))
)
def test_python_examples_run(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One page is one program. Examples that need a MessageBox or an installed package are only compiled here."""
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {"__name__": "example"}
    for block in blocks(page, "python"):
        code = compile(block.text, str(block), "exec")
        if not {"messagebox", "installed"} & set(block.words):
            exec(code, names)


def test_the_readme_shows_the_example_as_it_is() -> None:
    examples = [block.text for block in blocks(ROOT / "README.md", "python")]
    assert EXAMPLE.read_text(encoding="utf-8") in examples


def _find_commands() -> list[tuple[Block, str]]:
    return [
        (block, line.removeprefix("$ "))
        for page in pages()
        for block in blocks(page, "console")
        for line in _join_lines(block.text).splitlines()
        if line.startswith("$ ")
    ]


def _join_lines(text: str) -> str:
    return re.sub(r"\\\n\s*", " ", text)


@pytest.mark.parametrize(("block", "line"), _find_commands(), ids=str)
def test_commands_exist(block: Block, line: str) -> None:
    for words in _split_commands(line):
        program = words[0]
        if program == "make":
            targets = [word for word in words[1:] if "=" not in word]
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            for target in targets:
                assert re.search(rf"^{target}:", makefile, re.MULTILINE), f"{block}: make has no {target}"
        elif program.rpartition("/")[2] == "postroom":
            _check_command(words[1:])
        else:
            assert program in _TOOLS, f"{block}: unknown program {program}"


def _split_commands(line: str) -> list[list[str]]:
    """Split a line of shell into commands, without assignments, redirections and comments."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    commands: list[list[str]] = [[]]
    words = iter(lexer)
    for word in words:
        if word in ("|", "&&", ";", "&"):
            commands.append([])
        elif word in (">", ">>", "<", "2>"):
            next(words)
        elif commands[-1] or not re.fullmatch(r"[A-Z_]+=.*", word):
            commands[-1].append(word)
    return [command for command in commands if command]


def _check_command(arguments: list[str]) -> None:
    """Check that the arguments name a command, and only options and arguments that it has."""
    command: click.Command = cli
    context: click.Context | None = None
    asks_for_help = "--help" in arguments
    rest = [word for word in arguments if word != "--help"]
    while True:
        context = click.Context(command, info_name=command.name, parent=context)
        # The parser knows options and arguments, and does not check that files exist.
        values, remaining, _ = command.make_parser(context).parse_args(rest)
        if not isinstance(command, click.Group):
            break
        if not remaining:
            assert asks_for_help, f"{arguments} names no command"
            return
        found = command.get_command(context, remaining[0])
        assert found is not None, f"there is no command {remaining[0]!r} in {arguments}"
        command, rest = found, remaining[1:]
    assert not remaining, f"{command.name} does not take {remaining}"
    missing = [
        parameter.name
        for parameter in command.params
        if parameter.required and not _is_given(values.get(str(parameter.name)))
    ]
    assert not missing or asks_for_help, f"{arguments} lacks {missing}"


def _is_given(value: object) -> bool:
    """Return True unless the argument is missing. Versions of click differ in the value, which is never text."""
    return isinstance(value, str) or (isinstance(value, tuple | list) and any(isinstance(word, str) for word in value))


def test_the_table_of_system_properties_is_current() -> None:
    current = with_generated(PROPERTIES, "system properties", system_property_table())
    assert PROPERTIES.read_text(encoding="utf-8") == current, "run: python -m tests.support.pages"


def test_the_table_lists_the_properties_that_the_engine_sets() -> None:
    location = ReceiveLocation(
        location_id=uuid.uuid4(),
        name="drop",
        definition={"adapter": {"kind": "file"}},
        port_id=uuid.uuid4(),
        port={"name": "OrdersIn"},
        host_id=1,
        uri="file:///in",
        enabled=True,
    )
    context = build_initial_context(location, Interchange(interchange_id=uuid.uuid4(), body=Bytes(b"")))
    said = {name for name, text in SET_BY.items() if text.startswith("every received message")}
    promoted = {prop.dotted_name for prop in context if context.is_promoted(prop)} | {
        BTS.InterchangeSequenceNumber.dotted_name
    }
    written = {prop.dotted_name for prop in context if not context.is_promoted(prop)}
    assert said == promoted | written
    assert {name for name in said if "promoted" in SET_BY[name]} == promoted
    assert {*context.promoted, BTS.InterchangeSequenceNumber.key} == ALWAYS_PROMOTED


def test_the_table_lists_the_properties_that_the_code_uses() -> None:
    source = ROOT / "src" / "postroom"
    files = [*source.rglob("*.py"), *source.rglob("*.sql")]
    text = "".join(path.read_text(encoding="utf-8") for path in files if path.name != "system_properties.py")
    used = {f"{namespace}.{name}" for namespace, name in re.findall(r"\b(BTS|FILE|HTTP)[.#](\w+)", text)}
    assert used <= {*SET_BY}


def test_every_decision_is_in_the_index() -> None:
    index = (DECISIONS / "README.md").read_text(encoding="utf-8")
    found = sorted(DECISIONS.glob("[0-9]*.md"))
    assert [page.name[:4] for page in found] == [f"{number:04d}" for number in range(1, len(found) + 1)]
    for page in found:
        lines = page.read_text(encoding="utf-8").splitlines()
        number, title = page.name[:4], lines[0].removeprefix("# ")
        assert title.startswith(f"{number}. "), page.name
        assert f"[{number}]({page.name}) | {title[6:]} |" in index, page.name
        for heading in ("## Context", "## Decision", "## Consequences"):
            assert heading in lines, f"{page.name} has no {heading!r}"


def test_every_path_in_the_pages_exists() -> None:
    packages = "|".join(path.name for path in sorted((ROOT / "src" / "postroom").iterdir()) if path.is_dir())
    pattern = re.compile(
        rf"`((?:src/postroom/)?(?:{packages}|tests|bench|examples)/(?!octet-stream|json|xml)[\w./-]+)`"
    )
    missing = {
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages()
        for name in pattern.findall(page.read_text(encoding="utf-8"))
        if not any((folder / name).exists() for folder in (ROOT, ROOT / "src" / "postroom"))
    }
    assert missing == set()


def test_every_page_is_in_the_navigation_of_the_website() -> None:
    _, _, navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").partition("\nnav:\n")
    listed = {ROOT / path for path in re.findall(r"^ *- (\S+\.md)$", navigation, re.MULTILINE)}
    expected = {page for page in pages() if not re.match(r"\d{4}-", page.name)} - {ROOT / "docs" / "README.md"}
    assert listed == expected | {ROOT / "bench" / "RESULTS.md"}


def test_every_page_that_code_cites_exists() -> None:
    cited = {
        (page, str(path.relative_to(ROOT)))
        for path in (ROOT / "src").rglob("*")
        if path.suffix in (".py", ".sql")
        for page in re.findall(r"\bdocs/[\w/-]+\.md\b", path.read_text(encoding="utf-8"))
    }
    assert {citation for citation in cited if not (ROOT / citation[0]).exists()} == set()


def test_every_decision_that_code_cites_exists() -> None:
    known = {page.name[:4] for page in DECISIONS.glob("[0-9]*.md")}
    cited = {
        (number, str(path.relative_to(ROOT)))
        for folder in ("src", "tests", "bench", "examples")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sql")
        for number in re.findall(r"ADR (\d{4})", path.read_text(encoding="utf-8"))
    }
    assert {citation for citation in cited if citation[0] not in known} == set()


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("adapters.md", [adapter for adapter in ADAPTERS.values() if adapter is not Dynamic]),
        ("pipelines.md", [*get_args(pipelines.ReceivePipeline)]),
    ],
)
def test_every_argument_of_a_definition_is_documented(name: str, kinds: list[type[BaseModel]]) -> None:
    page = (REFERENCE / name).read_text(encoding="utf-8")
    for kind in kinds:
        assert kind.__name__ in page, f"{kind.__name__} is not on the page"
        for argument in {field.alias or argument for argument, field in kind.model_fields.items()} - {"kind"}:
            assert re.search(rf"\b{argument}\b", page), f"{kind.__name__}.{argument} is not on the page"


def test_every_argument_of_an_application_is_documented() -> None:
    page = (REFERENCE / "applications.md").read_text(encoding="utf-8")
    for method in (
        Application.send_port,
        Application.receive_port,
        Application.send_port_group,
        Application.dynamic_send_port,
        Application.host,
        Application("orders").receive_port("OrdersIn").location,
    ):
        for name in inspect.signature(method).parameters:
            assert re.search(rf"\b{name}\b", page) or name == "self", f"{name} is not on the page"


def test_every_argument_of_the_client_is_documented() -> None:
    page = (REFERENCE / "client.md").read_text(encoding="utf-8")
    arguments = {
        *inspect.signature(postroom.connect).parameters,
        *inspect.signature(Client.publish).parameters,
        *Content.__annotations__,
        *SubscriptionSettings.__annotations__,
    }
    for name in arguments - {"self", "content"}:
        assert f"| `{name}` |" in page, f"{name} is not on the page"
    for field in fields(Published):
        assert f"| `{field.name}` |" in page, f"{field.name} is not on the page"


@pytest.mark.parametrize("cls", [Client, Subscription, Received])
def test_every_public_name_of_the_client_is_documented(cls: type[object]) -> None:
    page = (REFERENCE / "client.md").read_text(encoding="utf-8")
    for name in vars(cls):
        assert name.startswith("_") or re.search(rf"`(\w+\.)?{name}\b", page), f"{name} is not on the page"


def test_every_public_name_of_orchestrations_is_documented_with_its_signature_and_an_example() -> None:
    page = (REFERENCE / "orchestrations.md").read_text(encoding="utf-8")
    sections = dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL))
    assert sorted(sections) == sorted(orchestrations.__all__)
    for name, section in sections.items():
        assert "\n```python\n" in section, f"{name} has no example"
        for text in _list_signatures(name, getattr(orchestrations, name)):
            assert text in section, f"{text} is not in the section of {name}"


def _list_signatures(name: str, value: Any) -> Iterator[str]:
    """Yield what the section of a function or class has: its signature, and the public members of a class. Authors
    create objects of three classes, and get those of the others from functions."""
    if not inspect.isclass(value):
        yield _write_signature(name, value)
        return
    if value in (Correlation, PartnerPort, JournalLimits):
        yield f"{_write_signature(name, value).removesuffix(' -> None`')}`"
    for member in {*vars(value), *vars(value).get("__annotations__", {})}:
        function = vars(value).get(member)
        if not member.startswith("_") and member != "code":
            yield _write_signature(member, function) if inspect.isfunction(function) else f"`{member}`"


def _write_signature(name: str, function: Any) -> str:
    signature = inspect.signature(function)
    parameters = [parameter for parameter in signature.parameters.values() if parameter.name != "self"]
    text = str(signature.replace(parameters=parameters)).replace("'", "")
    is_awaited = inspect.iscoroutinefunction(inspect.unwrap(function))
    return f"`{'await ' if is_awaited else ''}{name}{text}`"


def test_every_package_is_on_the_architecture_page() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    source = Path(postroom.__file__).parent
    for path in sorted(source.iterdir()):
        if (path.suffix == ".py" or path.is_dir()) and not path.name.startswith("__"):
            assert f"`{path.stem}`" in page, f"{path.stem} is not on the page"
    for path in sorted(source.glob("*/*/__init__.py")):
        package = path.parent
        if package.parent.name != "examples":
            name = f"{package.parent.name}/{package.name}"
            assert f"`{package.name}`" in page or f"`{name}`" in page, f"{name} is not on the page"


def test_every_function_on_a_page_of_explanations_exists() -> None:
    texts = [page.read_text(encoding="utf-8") for page in EXPLANATION.glob("*.md")]
    found = [named for text in texts for named in re.findall(r"`([\w/]+\.py): ([\w.]+)`", text)]
    assert found
    for path, name in found:
        assert count_lines(path, name), f"{path} has no {name}"


def test_the_functions_on_the_path_of_a_file_are_read_in_ten_minutes() -> None:
    _, _, page = (EXPLANATION / "reading-the-source.md").read_text(encoding="utf-8").partition("| step | function |")
    table, _, _ = page.partition("\n\n")
    found = re.findall(r"\| `([\w/]+\.\w+)(?:: ([\w.]+))?` \|", table)
    assert len(found) == table.count("\n") - 1
    assert sum(count_lines(path, name) for path, name in found) < 700


def count_lines(path: str, name: str) -> int:
    """Return the number of lines of a function, of a class, or without a name of the whole file. Return 0 if there is
    no such function."""
    source = (Path(postroom.__file__).parent / path).read_text(encoding="utf-8")
    if not name:
        return len(source.splitlines())
    body: list[ast.stmt] = ast.parse(source).body
    lines = 0
    for part in name.split("."):
        named = (node for node in body if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == part)
        node = next(named, None)
        if node is None:
            return 0
        body, lines = node.body, (node.end_lineno or 0) - node.lineno + 1
    return lines


def test_every_advisory_lock_is_listed() -> None:
    page = (EXPLANATION / "database.md").read_text(encoding="utf-8")
    used = {
        number
        for path in (ROOT / "src").rglob("*")
        if path.suffix in (".py", ".sql")
        for number in re.findall(r"\b70\d\d\b", path.read_text(encoding="utf-8"))
    }
    assert used == set(re.findall(r"^\| \((70\d\d), ", page, re.MULTILINE))


def test_every_behaviour_that_code_cites_is_explained() -> None:
    explained = set(re.findall(rf"^\| ({_ITEM}) \|", BEHAVIOUR.read_text(encoding="utf-8"), re.MULTILINE))
    cited = {
        item: path.relative_to(ROOT)
        for folder in ("src", "tests", "bench", "examples", "docs")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".sql", ".md") and path != Path(__file__)
        for item in re.findall(_ITEM, path.read_text(encoding="utf-8"))
    }
    assert {item: place for item, place in cited.items() if item not in explained} == {}


def test_figures_come_from_measurements() -> None:
    """Only bench/RESULTS.md and measurements of decisions contain rates."""
    rate = re.compile(r"\d[\d,.]* ?(?:messages|rows|orders)/s|\d[\d,.]* (?:messages|orders) (?:a|per) second")
    for page in pages():
        if "decisions" in page.parts:
            continue
        rates = [line for line in prose(page) if rate.search(line)]
        assert not rates, f"{page.name} contains a rate: {rates}"


def test_the_page_about_suspended_messages_has_every_reason() -> None:
    """Every code that a suspended instance can have: those without an error, and those of errors of a message."""
    reference = (REFERENCE / "errors.md").read_text(encoding="utf-8")
    without_error = reference.partition("## Codes of suspended instances only")[2].partition("\n## ")[0]
    codes = set(re.findall(r"^\| `(\w+)` \|", without_error, re.MULTILINE))
    codes |= set(re.findall(r"^\| `(\w+)` \| \w+ \| \d+ \| message \|", reference, re.MULTILINE)) - {"MESSAGE"}
    page = (ROOT / "docs" / "how-to" / "suspended-messages.md").read_text(encoding="utf-8")
    assert codes
    assert {code for code in codes if f"| `{code}` |" not in page} == set()
