"""Build the wheel of Postroom and install it in a virtual environment, without access to the checkout."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import sysconfig
import tarfile
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import PATIENCE, wait_until

ROOT = Path(__file__).parents[2]

_BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_{kind}(sys.argv[1]))"


def build_distributions(folder: Path) -> tuple[Path, Path]:
    """Build a source distribution, and a wheel from the unpacked source distribution. Return both."""
    sources, built = folder / "sources", folder / "dist"
    sources.mkdir()
    built.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, sources)
    shutil.copytree(ROOT / "src", sources / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    sdist = built / _build("sdist", sources, built)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    [unpacked] = (folder / "unpacked").iterdir()
    return sdist, built / _build("wheel", unpacked, built)


def _build(kind: str, sources: Path, target: Path) -> str:
    # The backend's own command, without an isolated environment, which would need a package index.
    result = subprocess.run(
        [sys.executable, "-c", _BUILD.format(kind=kind), str(target)],
        cwd=sources,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()[-1]


class WheelEnvironment:
    """A virtual environment with Postroom from a wheel. It uses the dependencies of the current environment."""

    def __init__(self, folder: Path, wheel: Path) -> None:
        venv.create(folder, with_pip=False)
        self._python = folder / "bin" / "python"
        self._bin = folder / "bin"
        # The dependencies take 1.2 GB, so they are not installed again. A path in a .pth file makes the packages of the
        # current environment importable. Their own .pth files are not read, so the checkout is not importable.
        site = sysconfig.get_path("purelib", vars={"base": str(folder), "platbase": str(folder)})
        Path(site, "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n", encoding="utf-8")
        pip = [sys.executable, "-m", "pip", "--python", str(self._python), "--disable-pip-version-check"]
        subprocess.run(
            [*pip, "install", "--quiet", "--no-deps", "--no-index", str(wheel)], check=True, env=self._environment()
        )

    def run(self, command: str, *, folder: Path) -> str:
        """Run a shell command in a folder with the environment activated, and return its output."""
        result = subprocess.run(
            ["/bin/sh", "-c", command],
            cwd=folder,
            env=self._environment(),
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, f"{command} ended with {result.returncode}:\n{result.stdout}{result.stderr}"
        return result.stdout

    @contextmanager
    def up(self, arguments: str, *, folder: Path, until: str) -> Iterator[None]:
        """Run ``postroom up`` in a folder. Wait until it prints ``until``, and stop it at the end."""
        log = folder / "up.log"
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["postroom", "up", *arguments.split()],
                cwd=folder,
                env=self._environment(),
                executable=self._bin / "postroom",
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        try:
            wait_until(lambda: until in log.read_text() or process.poll() is not None, what=f"{until!r} in {log}")
            assert process.poll() is None, log.read_text()
            yield
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(PATIENCE)
        assert process.returncode == 0, log.read_text()

    def _environment(self) -> dict[str, str]:
        inherited = {name: text for name, text in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}
        return inherited | {"PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}"}
