"""A cluster of processes on this machine (``local-cluster[2,1,1024]``): as on a real one, executors have JVMs of their
own, and can die alone. For tests, and for trying out what is to run on a cluster."""

from __future__ import annotations

import shutil
from pathlib import Path


def make_spark_home(home: Path, package: Path, *, work: Path) -> Path:
    """A SPARK_HOME of links to the installed package. Such a cluster writes what its executors need and say into the
    folder ``work`` below SPARK_HOME, which would be in the middle of the package; the link leads to ``work``, which
    begins empty."""
    home.mkdir(parents=True, exist_ok=True)
    for entry in package.iterdir():
        if entry.name != "work":
            (home / entry.name).symlink_to(entry)
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    (home / "work").symlink_to(work)
    return home
