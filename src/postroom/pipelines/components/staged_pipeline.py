"""A pipeline whose stages list components: how the stages are declared, checked, stored and shipped.

Every field with an alias is a stage. The alias is the stage's name in a definition.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import FunctionType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, ValidationInfo

from postroom.errors import DefinitionError, PipelineFailure
from postroom.pipelines.components.contract import Component
from postroom.pipelines.components.stored_component import StoredComponent, load_component, refer_to
from postroom.pipelines.definition import Format
from postroom.pipelines.promotions import find_engine_properties
from postroom.pipelines.shipping.modules import find_imported_files
from postroom.pipelines.shipping.shipped_files import NO_FILES, Files, ShippedFiles
from postroom.secrets.references import find_secret_problems
from postroom.stored_definitions import check_stored_objects

#: BizTalk's maximum for one stage (RCV-02, SND-01).
MAX_COMPONENTS = 255


class StagedPipeline(BaseModel):
    """A pipeline with components. ``seconds`` is the time limit for one call of a component. ``files`` are the files of
    the application's folder that the components need."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True)

    seconds: float = 60.0
    files: Files = NO_FILES

    @property
    def stages(self) -> Mapping[str, Sequence[Any]]:
        """The components by stage, in the order in which the stages run."""
        return {alias: getattr(self, name) for alias, name in self.list_stages()}

    def _list_components(self) -> list[tuple[str, Any]]:
        """Return the components, each with its stage and number."""
        stages = self.stages.items()
        return [
            (f"{stage}, component {number}", one) for stage, listed in stages for number, one in enumerate(listed, 1)
        ]

    @classmethod
    def list_stages(cls) -> Iterator[tuple[str, str]]:
        """Yield the stages, in the order in which they run: the name of each and its field."""
        for name, field in cls.model_fields.items():
            if field.alias is not None:
                yield field.alias, name

    def _get_max_components(self, stage: str) -> int:
        return MAX_COMPONENTS

    @abstractmethod
    def _component_problems(self, stage: str, component: object) -> Iterator[str]:
        """Describe what is wrong with one component of a stage."""

    def _stage_problems(self) -> list[str]:
        """Describe what is wrong with the components and the time limit."""
        found = []
        for stage, listed in self.stages.items():
            maximum = self._get_max_components(stage)
            if len(listed) > maximum:
                found.append(f"{stage} has {len(listed)} components; the maximum is {maximum}.")
            for number, component in enumerate(listed, 1):
                found += [f"{stage}, component {number}: {text}" for text in self._component_problems(stage, component)]
        if not self.seconds > 0:
            found.append(f"seconds is {self.seconds!r}, but must be more than 0.")
        return found

    def packing_problems(self, folder: Path) -> list[str]:
        """Describe what prevents the pipeline from running outside the application's folder, ``folder``."""
        found = []
        for position, component in self._list_components():
            try:
                if not isinstance(component, Format):
                    refer_to(component, folder)
            except DefinitionError as error:
                found.append(f"{position}: {error.what}")
        if found:
            return found
        try:
            packed = self.pack(folder)
            for position, component in packed._list_components():
                loaded = component if isinstance(component, Format) else load_component(component, packed.files)
                if isinstance(loaded, Component):
                    found += [f"{position}: {text}" for text in loaded.file_problems()]
        except DefinitionError as error:
            return [" ".join(text for text in (error.what, error.hint) if text)]
        except PipelineFailure as error:
            return [error.join_sentences(with_hint=False)]
        return found

    def read_files(self, folder: Path) -> Self:
        """Return the pipeline with the files that its components read, to run it in this process. Raise DefinitionError
        if one is missing."""
        names = {
            name for _, one in self._list_components() if isinstance(one, Component) for name in one.files_in(folder)
        }
        return self.model_copy(update={"files": ShippedFiles.collect(folder, names)})

    def pack(self, folder: Path) -> Self:
        """Return the pipeline with everything that it needs on other machines: references to its components, and the
        files of the application's folder that contain the components or that they read."""
        packed: dict[str, Any] = {}
        names: set[str] = set()
        for _, field in self.list_stages():
            listed = getattr(self, field)
            packed[field] = tuple(
                component if isinstance(component, Format) else refer_to(component, folder) for component in listed
            )
            for component in packed[field]:
                if isinstance(component, StoredComponent) and component.target == "file":
                    names.update(find_imported_files(folder, component.where))
            for component in listed:
                if isinstance(component, Component):
                    names.update(component.files_in(folder))
        return self.model_copy(update={**packed, "files": ShippedFiles.collect(folder, names)})


def class_problems(component: object, allowed: tuple[type[Component], ...]) -> Iterator[str]:
    """Describe what is wrong with a component that must be of an allowed class, or a function."""
    if isinstance(component, Component):
        if isinstance(component, allowed):
            yield from component.problems()
            yield from find_secret_problems(f"setting of {component.name}", dict(component))
            yield from find_engine_properties(getattr(component, "promotes", ()))
        else:
            names = " or ".join(each.__name__ for each in allowed)
            article = "an" if names[0] in "AEIOU" else "a"
            yield f"{component.name} is not {article} {names} and cannot be used in this stage."
    elif isinstance(component, type):
        yield f"{component.__name__} is a class; write {component.__name__}()."
    elif not isinstance(component, StoredComponent | FunctionType):
        yield f"{component!r} is neither a component nor a function."


def read_stage(source: object, info: ValidationInfo) -> tuple[Any, ...]:
    """Parse the components of a stage, or their stored form."""
    if not isinstance(source, list | tuple):
        example = f"{type(source).__name__}(...)" if isinstance(source, Format | Component) else "components.Gzip()"
        raise ValueError(f"write a list of components, such as [{example}]")
    check_stored_objects(source, info)
    return tuple(StoredComponent.read(each) if isinstance(each, Mapping) else each for each in source)


def store_stage(stage: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the stored form of the components of a stage."""
    return [
        component.model_dump(mode="json") if isinstance(component, Format) else refer_to(component, None).to_stored()
        for component in stage
    ]
