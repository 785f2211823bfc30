"""Components in a definition: how they are declared, stored, loaded and called.

Postroom's own components are stored by the public package that exports them and their name. A user's component is
stored by its file or module, its name and its settings. A file of the application's folder is shipped with the
pipeline. An exception of a component becomes a failure of the message, with the component's name. Errors of the
environment are raised unchanged.
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType
from typing import Any

from postroom.errors import DefinitionError, PipelineFailure, PostroomError, is_environment_error
from postroom.pipelines.components.contract import Component
from postroom.pipelines.shipping.modules import import_shipped_module
from postroom.pipelines.shipping.shipped_files import ShippedFiles
from postroom.processes.time_limit import TimedOut

_HINT = "Correct the application and apply it again, or install what is missing where the pipelines run; then resume."
#: The maximum number of characters of a reason.
_MAX_REASON = 500
#: The prefix of the names of files that are shipped with a definition.
_SHIPPED = re.compile(r"^<\w+>/")


@dataclass(frozen=True, kw_only=True)
class StoredComponent:
    """A reference to a component. ``settings`` is None for a function."""

    target: str
    """The kind of ``where``: ``builtin``, ``file`` or ``module``."""
    where: str
    name: str
    settings: Mapping[str, Any] | None = None

    def to_stored(self) -> dict[str, Any]:
        found: dict[str, Any] = {self.target: self.where, "name": self.name}
        return found if self.settings is None else {**found, "settings": dict(self.settings)}

    @classmethod
    def read(cls, stored: Mapping[str, Any]) -> StoredComponent:
        for target in ("builtin", "file", "module"):
            if target in stored and "name" in stored:
                return cls(target=target, where=stored[target], name=stored["name"], settings=stored.get("settings"))
        raise ValueError(f"{stored!r} is not a stored component")

    def load(self, files: ShippedFiles) -> Component | Callable[..., Any]:
        """Load the component. Raises PipelineFailure if this is not possible here."""
        try:
            is_file = self.target == "file"
            found: Any = import_shipped_module(files, self.where) if is_file else importlib.import_module(self.where)
            for step in self.name.split("."):
                found = getattr(found, step)
            loaded: Component | Callable[..., Any] = found if self.settings is None else found(**self.settings)
        except PipelineFailure:
            raise
        except BaseException as error:
            if is_environment_error(error):
                raise
            raise PipelineFailure(
                f"The component {self.name} cannot be loaded.",
                why=f"{self.where}: {type(error).__name__}: {error}",
                hint=_HINT,
            ) from error
        return _with_files(loaded, files)


def load_component(component: object, files: ShippedFiles) -> Component | Callable[..., Any]:
    """Return a component of a definition, ready to run."""
    if isinstance(component, StoredComponent):
        return component.load(files)
    assert isinstance(component, Component) or callable(component)
    return _with_files(component, files) if isinstance(component, Component) else component


def _with_files(component: Component | Callable[..., Any], files: ShippedFiles) -> Component | Callable[..., Any]:
    if isinstance(component, Component):
        component._files = files
    return component


def component_name(component: object) -> str:
    if isinstance(component, StoredComponent):
        return component.name.rpartition(".")[2]
    if isinstance(component, Component):
        return component.name
    return str(getattr(component, "__name__", type(component).__name__))


def refer_to(component: object, folder: Path | None) -> StoredComponent:
    """Return the reference with which a component is stored. A component in the application's folder is referred to by
    its file. Raises DefinitionError if it could not be loaded again."""
    if isinstance(component, StoredComponent):
        return component
    if isinstance(component, Component):
        definition: Any = type(component)
        source = definition.source_file
        settings: dict[str, Any] | None = component.model_dump(mode="json")
    elif isinstance(component, FunctionType):
        definition = component
        source = component.__code__.co_filename
        settings = None
    else:
        raise DefinitionError(f"{component!r} is neither a component nor a function.")
    name, module = definition.__qualname__, definition.__module__
    if name.endswith("<lambda>"):
        line = definition.__code__.co_firstlineno
        raise DefinitionError(f"A lambda (line {line}) has no name to load it by; write a function with def.")
    if "<" in name:
        raise DefinitionError(f"{name} is defined inside a function; define it at the top level of a file.")
    if module.partition(".")[0] == __name__.partition(".")[0]:
        return StoredComponent(target="builtin", where=_public_package(definition), name=name, settings=settings)
    if source and folder is not None and (inside := _relative_path(Path(source), folder)) is not None:
        return StoredComponent(target="file", where=inside, name=name, settings=settings)
    if module.startswith(("_application_", "__main__")) or importlib.util.find_spec(module.partition(".")[0]) is None:
        raise DefinitionError(f"{name} is in {source or module}, which is outside the application's folder.")
    return StoredComponent(target="module", where=module, name=name, settings=settings)


def _public_package(definition: Any) -> str:
    """Return the outermost package of Postroom that exports it. Its modules may move, and stored references stay
    valid."""
    steps = definition.__module__.split(".")
    packages = (".".join(steps[:end]) for end in range(1, len(steps)))
    exporting = (name for name in packages if getattr(sys.modules[name], definition.__qualname__, None) is definition)
    return next(exporting, definition.__module__)


def _relative_path(source: Path, folder: Path) -> str | None:
    source, folder = source.resolve(), folder.resolve()
    if not source.is_relative_to(folder) or "site-packages" in source.relative_to(folder).parts:
        return None
    return source.relative_to(folder).as_posix()


def run_component(name: str, work: Callable[[Any], Any], argument: object) -> Any:
    """Call a component. Raises PipelineFailure for what it raises."""
    try:
        return work(argument)
    except TimedOut:
        raise
    except BaseException as error:
        # Also SystemExit: a component must not end the process that it runs in.
        raise component_failure(name, error) from error


def component_failure(name: str, reason: BaseException | str) -> PipelineFailure:
    """Return the failure that a component raised or gave a reason for. An error of the environment is raised again."""
    if isinstance(reason, BaseException) and is_environment_error(reason):
        raise reason
    if isinstance(reason, str):
        return PipelineFailure(f"{name}: {reason[:_MAX_REASON]}", hint="Correct the message and send it again.")
    if isinstance(reason, PostroomError):
        return PipelineFailure(f"{name}: {reason.what}", why=reason.why, hint=reason.hint)
    text = str(reason)
    return PipelineFailure(
        f"{name}: {text[:_MAX_REASON] or type(reason).__name__}",
        why=f"{type(reason).__name__}{format_source_line(reason)}",
        hint="Correct the message and send it again, or correct the component and resume.",
    )


def format_source_line(error: BaseException) -> str:
    """Return where the error was raised, as " at FILE:LINE." of the innermost frame. A shipped file has its original
    name."""
    frames = traceback.extract_tb(error.__traceback__)
    return f" at {_SHIPPED.sub('', frames[-1].filename)}:{frames[-1].lineno}." if frames else "."
