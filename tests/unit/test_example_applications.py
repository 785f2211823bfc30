"""The example applications, and the folders that `postroom init` writes from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from postroom.application.loading.load import load
from postroom.cli.exit_codes import ExitCode
from postroom.cli.main import main
from postroom.example_applications import EXAMPLES, get_example_folder, load_steps

ROOT = Path(__file__).parents[2]


def test_the_folder_examples_has_every_example_and_no_other() -> None:
    assert sorted(path.name for path in (ROOT / "examples").iterdir() if path.name != "__pycache__") == sorted(EXAMPLES)
    assert (ROOT / "examples" / "orders").samefile(get_example_folder("orders"))


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_has_a_short_readme_that_names_its_demo(name: str) -> None:
    lines = (get_example_folder(name) / "README.md").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("# ")
    assert f"    postroom demo {name}" in lines
    assert len(lines) <= 15


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_demo_expects_something_in_each_of_its_folders(name: str) -> None:
    for step in load_steps(name):
        assert step.outputs
        assert all(contents.total() > 0 for contents in step.outputs.values())


@pytest.mark.parametrize("name", EXAMPLES)
def test_init_writes_an_application_with_the_name_of_the_folder(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "my shop"
    assert main(["init", str(folder), "--example", name, "-o", "json"]) == ExitCode.OK
    written = {Path(example["file"]).relative_to(folder).as_posix() for example in json.loads(capsys.readouterr().out)}
    assert {"app.py", "README.md"} <= written
    assert written == {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert not any("demo" in path or "__pycache__" in path for path in written)
    before, after = load(get_example_folder(name) / "app.py"), load(folder / "app.py")
    assert (before.name, after.name) == (name, "my shop")
    assert [port.name for port in after.send_ports] == [port.name for port in before.send_ports]


def test_init_lists_the_written_files_and_the_next_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["init", "shop"]) == ExitCode.OK
    output = capsys.readouterr().out
    assert "wrote shop/app.py" in output
    assert "cd shop\n       postroom up app.py" in output
    assert main(["init", "my shop"]) == ExitCode.OK
    assert "cd 'my shop'\n" in capsys.readouterr().out


def test_init_accepts_an_empty_folder_and_rejects_a_folder_with_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    assert main(["init", str(folder)]) == ExitCode.OK
    (folder / "app.py").write_text("mine")
    assert main(["init", str(folder)]) == ExitCode.STATE
    assert "is not empty" in capsys.readouterr().err
    assert (folder / "app.py").read_text() == "mine"


def test_init_rejects_an_unknown_example(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["init", str(tmp_path / "shop"), "--example", "order"]) == ExitCode.NOT_FOUND
    assert "Did you mean orders?" in capsys.readouterr().err
    assert not (tmp_path / "shop").exists()
