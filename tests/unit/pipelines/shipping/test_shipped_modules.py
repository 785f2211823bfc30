"""Modules from shipped files: sets of files are independent and do not block each other."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from postroom.errors import PipelineFailure
from postroom.pipelines.shipping import modules as shipped_modules
from postroom.pipelines.shipping.shipped_files import ShippedFiles
from postroom.processes.time_limit import TimeLimit

#: The modules of these tests use it.
released = threading.Event()
runs: list[str] = []

HERE = f"from {__name__} import released, runs\n"


def files_of(**contents: str) -> ShippedFiles:
    return ShippedFiles({f"{name.replace('__', '/')}.py": text.encode() for name, text in contents.items()})


def watched(files: ShippedFiles, path: str, seconds: float) -> str:
    """Import a module as a pipeline does."""
    time_limit = TimeLimit(seconds)

    def steps() -> Iterator[str]:
        yield time_limit.call(path, lambda: shipped_modules.import_shipped_module(files, path).__name__)

    [name] = time_limit.iterate(steps)
    return name


def test_a_file_that_never_returns_blocks_no_other_file() -> None:
    try:
        slow = files_of(slow=f"{HERE}import beside\nreleased.wait(60)\n", beside="", other="import beside\n")
        with pytest.raises(PipelineFailure, match=r"slow\.py: it did not return"):
            watched(slow, "slow.py", 0.05)
        good = files_of(good="import beside\n", beside="NAME = 'good'\n")
        assert watched(good, "good.py", 30).endswith(".good")
        # Other modules of the same pipeline are not blocked either.
        assert watched(slow, "other.py", 30).endswith(".other")
    finally:
        released.set()


@pytest.mark.parametrize(
    "statements",
    [
        "import beside\nNAME = beside.NAME",
        "from beside import NAME",
        "from .beside import NAME",
        "import folder.inner as inner\nNAME = inner.NAME",
        "import folder.inner\nNAME = folder.inner.NAME",
        "from folder import inner\nNAME = inner.NAME",
        "from folder.inner import *",
    ],
)
def test_a_neighbouring_module_is_imported_by_its_name(statements: str) -> None:
    """This is also true if another set of files has a module of the same name."""
    for name in ("one", "two"):
        beside = f"NAME = {name!r}\n"
        inner = "from beside import NAME\n"
        files = files_of(main=f"{statements}\n", beside=beside, folder__inner=inner)
        module = shipped_modules.import_shipped_module(files, "main.py")
        assert name == module.NAME
    assert "beside" not in sys.modules
    assert "folder" not in sys.modules


def test_a_neighbouring_module_can_be_imported_inside_a_function() -> None:
    files = files_of(main="def name():\n    from beside import NAME\n    return NAME\n", beside="NAME = 'later'\n")
    assert shipped_modules.import_shipped_module(files, "main.py").name() == "later"


def test_a_loaded_module_of_the_standard_library_takes_precedence() -> None:
    files = files_of(main="import json\nimport threading\n", json="raise RuntimeError('not this one')\n")
    module = shipped_modules.import_shipped_module(files, "main.py")
    assert module.json is sys.modules["json"]
    assert module.threading is threading


def test_a_missing_module_is_reported_by_its_own_name() -> None:
    files = files_of(main="import beside.nothing\n", beside="")
    with pytest.raises(ModuleNotFoundError, match="beside"):
        shipped_modules.import_shipped_module(files, "main.py")


def test_many_threads_run_a_file_once_and_get_the_complete_module() -> None:
    files = files_of(
        main=f"{HERE}import time\nruns.append('main')\nimport beside\ntime.sleep(0.05)\nWHOLE = True\n",
        beside=f"{HERE}runs.append('beside')\n",
    )
    with ThreadPoolExecutor(8) as pool:
        modules = list(pool.map(lambda _: shipped_modules.import_shipped_module(files, "main.py"), range(16)))
    assert all(module.WHOLE for module in modules)
    assert runs == ["main", "beside"]
