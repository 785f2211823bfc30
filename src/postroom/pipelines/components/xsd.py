"""A validator for XML schemas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from postroom.errors import PipelineFailure
from postroom.pipelines.components.contract import Validator
from postroom.pipelines.definition import type_problems
from postroom.pipelines.shipping.shipped_files import ShippedFiles, normalize_name

if TYPE_CHECKING:
    from postroom.pipelines.documents.message_batch import MessageBatch
    from postroom.schemas.validation import CompiledSchemas


class Xsd(Validator):
    """Accepts only documents that are valid by the schema of their root.

    components.Xsd("schemas/Order.xsd", "schemas/Invoice.xsd")

    The files that the schemas include and import are shipped from the application's folder. No other files are used. A
    document whose root is not declared is rejected. With ``message_type`` it validates only messages of this type.
    """

    schemas: tuple[str, ...]
    message_type: str | None = None

    def __init__(self, *schemas: str, **settings: Any) -> None:
        super().__init__(**{"schemas": schemas, **settings})

    def problems(self) -> list[str]:
        found = [] if self.schemas else ["It has no schemas; write the names of files, such as 'schemas/Order.xsd'."]
        return found + type_problems(self.message_type)

    def file_names(self) -> Sequence[str]:
        return self.schemas

    def files_in(self, folder: Path) -> Sequence[str]:
        # lxml is needed to read schemas, not to declare an application.
        from postroom.schemas.validation import find_referenced_files

        return find_referenced_files(folder, list(map(normalize_name, self.schemas)))

    def file_problems(self) -> list[str]:
        return _compile(self._files, self.schemas).problems

    def validate_batch(self, batch: MessageBatch) -> Mapping[int, str | Exception]:
        from postroom.pipelines.documents.disassembled_batch import read_whole
        from postroom.pipelines.xml.promotion import get_message_type
        from postroom.pipelines.xml.tree import read_tree

        xsds = _compile(self._files, self.schemas)
        rejected: dict[int, str | Exception] = {}
        roots = batch._roots
        types = batch.table["message_type"].to_pylist() if self.message_type is not None else None
        for row in range(len(batch)):
            if types is not None and types[row] != self.message_type:
                continue
            if roots and xsds.is_certainly_valid(roots[row]):
                continue
            # Parsed alone, so that errors have the line numbers of the document.
            try:
                root = read_tree(read_whole(batch.body(row), "document that is validated"))
            except PipelineFailure as failure:
                rejected[row] = failure
                continue
            if not xsds.declares_root(root):
                rejected[row] = PipelineFailure(
                    f"There is no schema for the message type {get_message_type(root)!r}.",
                    why=f"The schemas are {', '.join(self.schemas)}.",
                    hint="Add its schema to the validator, or correct the document.",
                )
            elif problems := xsds.find_errors(root):
                rejected[row] = PipelineFailure(
                    "The document is not valid by its schema.",
                    why="; ".join(problems),
                    hint="Correct the document and send it again.",
                )
        return rejected


@lru_cache(maxsize=32)
def _compile(files: ShippedFiles, schemas: tuple[str, ...]) -> CompiledSchemas:
    from postroom.schemas.validation import CompiledSchemas

    # A file that was not shipped raises its own failure.
    return CompiledSchemas(files.contents, [normalize_name(name) for name in schemas if files.read(name)])
