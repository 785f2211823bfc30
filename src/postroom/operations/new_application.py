"""Write a new application folder from one of the examples."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from postroom.errors import NotFound, StateError, suggest_names
from postroom.operations.demo import EXAMPLES, get_example_folder

#: Files that belong to the demo of an example, not to the application.
_IGNORED = ("demo.py", "__pycache__")


def find_example(name: str) -> Path:
    """Return the folder of an example. Raise NotFound if there is none with this name."""
    if name not in EXAMPLES:
        raise NotFound(f"There is no example {name!r}.", hint=suggest_names(name, EXAMPLES, "The examples are"))
    return get_example_folder(name)


def write_application(folder: Path, example: str) -> list[Path]:
    """Copy an example into a new folder, as an application with the folder's name. Return the files written."""
    source = find_example(example)
    if folder.exists() and any(folder.iterdir()):
        raise StateError(f"{folder} is not empty.", hint="Name a folder that does not exist yet.")
    name = folder.absolute().name
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns(*_IGNORED), dirs_exist_ok=True)
    app = folder / "app.py"
    declared = app.read_text(encoding="utf-8")
    literal = json.dumps(name, ensure_ascii=False)
    app.write_text(declared.replace(f'Application("{example}")', f"Application({literal})"), encoding="utf-8")
    return sorted(path for path in folder.rglob("*") if path.is_file())
