"""Validators for JSON Schema and for XML schemas."""

from __future__ import annotations

import json
import posixpath
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urljoin

from postroom.errors import PipelineFailure
from postroom.pipelines.components.contract import Validator
from postroom.pipelines.definition import type_problems
from postroom.pipelines.shipping.shipped_files import ShippedFiles, normalize_name

if TYPE_CHECKING:
    import jsonschema_rs

    from postroom.pipelines.documents.message_batch import MessageBatch
    from postroom.schemas.validation import CompiledSchemas

#: The base address of the files while they are compiled.
_BASE = "postroom:///"
#: The maximum number of errors in a failure, and the maximum length of each.
_MAX_ERRORS, _MAX_ERROR_LENGTH = 3, 200


class _DocumentValidator(Validator):
    """Validates each document by itself. With ``message_type`` only messages of this type are validated."""

    message_type: str | None = None

    def problems(self) -> list[str]:
        return type_problems(self.message_type)

    def validate_batch(self, batch: MessageBatch) -> Mapping[int, str | Exception]:
        check = self._load_check()
        types = batch.table["message_type"].to_pylist() if self.message_type is not None else None
        rejected: dict[int, str | Exception] = {}
        for row in range(len(batch)):
            if types is None or types[row] == self.message_type:
                try:
                    check(batch, row)
                except PipelineFailure as failure:
                    rejected[row] = failure
        return rejected

    @abstractmethod
    def _load_check(self) -> Callable[[MessageBatch, int], None]:
        """Return the function that raises PipelineFailure if a document of a batch is not valid."""


def _invalid_failure(problems: Sequence[str]) -> PipelineFailure:
    return PipelineFailure(
        "The document is not valid by its schema.",
        why="; ".join(problems),
        hint="Correct the document and send it again.",
    )


class JsonSchema(_DocumentValidator):
    """Accepts only documents that are valid by a JSON Schema (draft 4, 6, 7, 2019-09 or 2020-12).

    components.JsonSchema("schemas/order.json")

    With ``message_type`` it validates only messages of this type. The files that it refers to (``$ref``) are shipped
    from the application's folder. No other files are used. ``formats``: check ``format``. The default depends on the
    draft.
    """

    schema_file: str
    formats: bool | None = None

    def __init__(self, schema_file: str, **settings: Any) -> None:
        super().__init__(**{"schema_file": schema_file, **settings})

    def file_names(self) -> Sequence[str]:
        return (self.schema_file,)

    def files_in(self, folder: Path) -> Sequence[str]:
        return _find_referenced_files(folder, self.schema_file)

    def file_problems(self) -> list[str]:
        try:
            _compile(self._files, self.schema_file, self.formats)
        except PipelineFailure as failure:
            return [failure.join_sentences(with_hint=False)]
        return []

    def _load_check(self) -> Callable[[MessageBatch, int], None]:
        return partial(_check_json, _compile(self._files, self.schema_file, self.formats))


def _check_json(validator: jsonschema_rs.Validator, batch: MessageBatch, row: int) -> None:
    import msgspec

    from postroom.pipelines.documents.disassembled_batch import read_whole
    from postroom.pipelines.documents.node_limit import JSON_MARKS, check_node_count
    from postroom.pipelines.json.failure import decode_document

    content = read_whole(batch.body(row), "document that is validated")
    check_node_count(content, JSON_MARKS)
    decoded = decode_document(content, msgspec.json.decode)
    try:
        if validator.is_valid(decoded):
            return
        problems = list(_format_errors(validator, decoded))
    except (ValueError, RecursionError) as error:
        raise PipelineFailure(
            "The document cannot be validated.", why=f"{error}.", hint="Send it with fewer levels."
        ) from None
    raise _invalid_failure(problems)


def _format_errors(validator: jsonschema_rs.Validator, decoded: object) -> Iterator[str]:
    """Yield the first errors, each with the path to its value."""
    for number, error in enumerate(validator.iter_errors(decoded)):
        if number == _MAX_ERRORS:
            yield "and more"
            return
        path = "/".join(map(str, error.instance_path))
        yield f"{f'at {path}: ' if path else ''}{error.message[:_MAX_ERROR_LENGTH]}"


@lru_cache(maxsize=32)
def _compile(files: ShippedFiles, name: str, formats: bool | None) -> jsonschema_rs.Validator:
    import jsonschema_rs

    schemas = _Schemas(files, name)
    try:
        return jsonschema_rs.validator_for(
            schemas.main, retriever=schemas.retrieve, base_uri=_BASE + name, validate_formats=formats
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        path = "/".join(map(str, getattr(error, "instance_path", ())))
        text = str(getattr(error, "message", error)).partition("\n")[0][:_MAX_ERROR_LENGTH]
        raise PipelineFailure(
            f"{name} is not a JSON Schema.",
            why=f"{f'at {path}: ' if path else ''}{text}",
            hint="Correct the schema and apply the application again.",
        ) from None


class _Schemas:
    """The shipped files, by all addresses that refer to them."""

    def __init__(self, files: ShippedFiles, name: str) -> None:
        self.main = _read(name, files.read(name))
        self._by_address: dict[str, Any] = {}
        own = self.main.get("$id") if isinstance(self.main, dict) else None
        for other, content in files.contents.items():
            if not other.endswith(".json"):
                continue
            schema = _read(other, content)
            self._by_address[_BASE + other] = schema
            if isinstance(own, str):
                # A path relative to the schema's file is also relative to its id.
                self._by_address[urljoin(own, posixpath.relpath(other, posixpath.dirname(name) or "."))] = schema
            if isinstance(schema, dict) and isinstance(schema.get("$id"), str):
                self._by_address[urldefrag(schema["$id"]).url] = schema

    def retrieve(self, address: str) -> Any:
        try:
            return self._by_address[address]
        except KeyError:
            shown = address.removeprefix(_BASE)
            raise ValueError(f"{shown} is not in the application's folder") from None


def _read(name: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise PipelineFailure(
            f"{name} is not JSON.", why=f"{error}.", hint="Correct the schema and apply the application again."
        ) from None


def _find_referenced_files(folder: Path, name: str) -> list[str]:
    """Return a schema and the files that it refers to, directly or indirectly."""
    found: dict[str, None] = {}
    pending = [name]
    while pending:
        file = pending.pop()
        if file in found:
            continue
        found[file] = None
        path = (folder / file).resolve()
        if not path.is_relative_to(folder.resolve()) or not path.is_file():
            continue
        try:
            schema = _read(file, path.read_bytes())
        except PipelineFailure:
            continue
        for reference in _find_references(schema):
            other = posixpath.normpath((PurePosixPath(file).parent / reference).as_posix())
            if (folder / other).is_file():
                pending.append(other)
    return list(found)


def _find_references(schema: object) -> Iterator[str]:
    """Yield every path in a ``$ref`` at any depth. Addresses with a scheme are not paths."""
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            path = urldefrag(reference).url
            if path and ":" not in path and not path.startswith("/"):
                yield path
        for inner in schema.values():
            yield from _find_references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _find_references(inner)


class Xsd(_DocumentValidator):
    """Accepts only documents that are valid by the schema of their root.

    components.Xsd("schemas/Order.xsd", "schemas/Invoice.xsd")

    The files that the schemas include and import are shipped from the application's folder. No other files are used. A
    document whose root is not declared is rejected. With ``message_type`` it validates only messages of this type.
    """

    schemas: tuple[str, ...]

    def __init__(self, *schemas: str, **settings: Any) -> None:
        super().__init__(**{"schemas": schemas, **settings})

    def problems(self) -> list[str]:
        found = [] if self.schemas else ["It has no schemas; write the names of files, such as 'schemas/Order.xsd'."]
        return found + super().problems()

    def file_names(self) -> Sequence[str]:
        return self.schemas

    def files_in(self, folder: Path) -> Sequence[str]:
        # lxml is needed to read schemas, not to declare an application.
        from postroom.schemas.validation import find_referenced_files

        return find_referenced_files(folder, list(map(normalize_name, self.schemas)))

    def file_problems(self) -> list[str]:
        return _compile_xsd(self._files, self.schemas).problems

    def _load_check(self) -> Callable[[MessageBatch, int], None]:
        return partial(self._check, _compile_xsd(self._files, self.schemas))

    def _check(self, xsds: CompiledSchemas, batch: MessageBatch, row: int) -> None:
        from postroom.pipelines.documents.disassembled_batch import read_whole
        from postroom.pipelines.xml.promotion import get_message_type
        from postroom.pipelines.xml.tree import read_tree

        if batch._roots and xsds.is_certainly_valid(batch._roots[row]):
            return
        # Parsed alone, so that errors have the line numbers of the document.
        root = read_tree(read_whole(batch.body(row), "document that is validated"))
        if not xsds.declares_root(root):
            raise PipelineFailure(
                f"There is no schema for the message type {get_message_type(root)!r}.",
                why=f"The schemas are {', '.join(self.schemas)}.",
                hint="Add its schema to the validator, or correct the document.",
            )
        if problems := xsds.find_errors(root):
            raise _invalid_failure(problems)


@lru_cache(maxsize=32)
def _compile_xsd(files: ShippedFiles, schemas: tuple[str, ...]) -> CompiledSchemas:
    from postroom.schemas.validation import CompiledSchemas

    # A file that was not shipped raises its own failure.
    return CompiledSchemas(files.contents, [normalize_name(name) for name in schemas if files.read(name)])
