"""The files of an application's folder that its pipelines need at run time. They are shipped inside the definition.

So a component is the same on every executor of a cluster and in every host, without installing or copying anything. It
changes only when an application is applied.
"""

from __future__ import annotations

import base64
import hashlib
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Annotated, Any

from pydantic import PlainSerializer, PlainValidator

from postroom.errors import DefinitionError, PipelineFailure

#: The maximum size of all files of a pipeline together. They are read with the configuration.
MAX_BYTES = 4 << 20


@dataclass(frozen=True)
class ShippedFiles:
    """Contents by path, relative to the application's folder and with forward slashes."""

    contents: Mapping[str, bytes] = field(default_factory=dict)

    def __hash__(self) -> int:
        return hash(self.digest)

    @cached_property
    def digest(self) -> str:
        digest = hashlib.sha256()
        for name in sorted(self.contents):
            digest.update(f"{name}\0{len(self.contents[name])}\0".encode())
            digest.update(self.contents[name])
        return digest.hexdigest()

    def read(self, name: str) -> bytes:
        try:
            return self.contents[normalize_name(name)]
        except KeyError:
            raise PipelineFailure(
                f"The file {name!r} was not shipped with the pipeline.",
                hint="Name it in file_names() of the component, and apply the application again.",
            ) from None

    @classmethod
    def collect(cls, folder: Path, names: Iterable[str]) -> ShippedFiles:
        """Read the files. Raises DefinitionError if one is outside the folder or unreadable, or if they are too
        large."""
        contents = {}
        for name in sorted({normalize_name(name) for name in names}):
            try:
                contents[name] = _resolve_inside(folder, name).read_bytes()
            except OSError as error:
                raise DefinitionError(f"the file {name!r} cannot be read in {folder}: {error.strerror}.") from None
        size = sum(map(len, contents.values()))
        if size > MAX_BYTES:
            raise DefinitionError(
                f"the files of the pipeline have {size:,} bytes in total; the maximum is {MAX_BYTES:,}.",
                hint="Install large packages where the pipelines run instead of putting them into the folder.",
            )
        return cls(contents)

    def to_stored(self) -> dict[str, str]:
        return {
            name: base64.b64encode(zlib.compress(content, 9)).decode()
            for name, content in sorted(self.contents.items())
        }

    @classmethod
    def from_stored(cls, stored: object) -> ShippedFiles:
        if isinstance(stored, ShippedFiles):
            return stored
        if not isinstance(stored, Mapping) or not all(isinstance(text, str) for text in stored.values()):
            raise ValueError(f"{stored!r} is not a stored set of files")
        try:
            return cls({str(name): zlib.decompress(base64.b64decode(text)) for name, text in stored.items()})
        except zlib.error as error:
            raise ValueError(f"the stored files are damaged: {error}") from None


NO_FILES = ShippedFiles()

#: The type of a field for shipped files.
Files = Annotated[
    ShippedFiles,
    PlainValidator(ShippedFiles.from_stored),
    PlainSerializer(ShippedFiles.to_stored, return_type=dict[str, Any]),
]


def normalize_name(name: str) -> str:
    """Return the name of a file as ``ShippedFiles.contents`` has it."""
    return PurePosixPath(name.replace("\\", "/")).as_posix()


def _resolve_inside(folder: Path, name: str) -> Path:
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise DefinitionError(f"the file {name!r} is outside the application's folder, {folder}.")
    return path
