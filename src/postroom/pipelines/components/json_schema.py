"""A validator by JSON Schema."""

from __future__ import annotations

import json
import posixpath
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any
from urllib.parse import urldefrag, urljoin

from postroom.errors import BadValue, PipelineFailure
from postroom.pipelines.components.contract import Validator
from postroom.pipelines.shipping.files import ShippedFiles
from postroom.system_properties import BTS

if TYPE_CHECKING:
    import jsonschema_rs

    from postroom.pipelines.documents.message_batch import MessageBatch

#: Where the files seem to be while they are compiled.
_HERE = "postroom:///"
#: How many of the problems of a document are told, and how much of each.
_SHOWN, _LONGEST = 3, 200


class JsonSchema(Validator):
    """Lets only those documents pass that are valid by a JSON Schema (draft 4, 6, 7, 2019-09 or 2020-12).

    components.JsonSchema("schemas/order.json")

    With ``message_type`` it looks at messages of that type only. Files that it refers to (``$ref``) are taken along
    from the application's folder, and looked for nowhere else. ``formats`` says whether ``format`` is checked; left
    out, that is as the draft says.
    """

    schema_file: str
    message_type: str | None = None
    formats: bool | None = None

    def __init__(self, schema_file: str, **settings: Any) -> None:
        super().__init__(**{"schema_file": schema_file, **settings})

    def problems(self) -> list[str]:
        try:
            BTS.MessageType.check(self.message_type or "any")
        except BadValue as error:
            return [error.what]
        return []

    def file_names(self) -> Sequence[str]:
        return (self.schema_file,)

    def files_in(self, folder: Path) -> Sequence[str]:
        return _referred(folder, self.schema_file)

    def file_problems(self) -> list[str]:
        try:
            _compiled(self._files, self.schema_file, self.formats)
        except PipelineFailure as failure:
            return [" ".join(text for text in (failure.what, failure.why) if text)]
        return []

    def validate_batch(self, batch: MessageBatch) -> Mapping[int, str | Exception]:
        known = _compiled(self._files, self.schema_file, self.formats)
        types = batch.table["message_type"].to_pylist() if self.message_type is not None else None
        rejected: dict[int, str | Exception] = {}
        for row in range(len(batch)):
            if types is not None and types[row] != self.message_type:
                continue
            try:
                _check(known, batch, row)
            except PipelineFailure as failure:
                rejected[row] = failure
        return rejected


def _check(known: jsonschema_rs.Validator, batch: MessageBatch, row: int) -> None:
    import msgspec

    from postroom.pipelines.documents.disassembled_batch import read_whole
    from postroom.pipelines.documents.node_limit import JSON_MARKS, refuse_many_nodes
    from postroom.pipelines.json.failure import UTF_8_MARK, malformed, refuse_utf_16

    content = read_whole(batch.body(row), "document that is validated")
    refuse_utf_16(content)
    document = content.removeprefix(UTF_8_MARK)
    refuse_many_nodes(document, JSON_MARKS)
    try:
        decoded = msgspec.json.decode(document)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed(document, error) from None
    try:
        if known.is_valid(decoded):
            return
        problems = list(_problems(known, decoded))
    except (ValueError, RecursionError) as error:
        raise PipelineFailure(
            "The document cannot be compared with its schema.", why=f"{error}.", hint="Send it with fewer levels."
        ) from None
    raise PipelineFailure(
        "The document is not valid by its schema.",
        why="; ".join(problems),
        hint="Correct the document and send it again.",
    )


def _problems(known: jsonschema_rs.Validator, decoded: object) -> Iterator[str]:
    """The first few, each with the way to it."""
    for number, error in enumerate(known.iter_errors(decoded)):
        if number == _SHOWN:
            yield "and more"
            return
        place = "/".join(map(str, error.instance_path))
        yield f"{f'at {place}: ' if place else ''}{error.message[:_LONGEST]}"


@lru_cache(maxsize=32)
def _compiled(files: ShippedFiles, name: str, formats: bool | None) -> jsonschema_rs.Validator:
    import jsonschema_rs

    schemas = _Schemas(files, name)
    try:
        return jsonschema_rs.validator_for(
            schemas.main,
            retriever=schemas.retrieve,
            base_uri=_HERE + name,
            validate_formats=formats,
        )
    except (jsonschema_rs.ValidationError, jsonschema_rs.ReferencingError, ValueError) as error:
        place = "/".join(map(str, getattr(error, "instance_path", ())))
        text = str(getattr(error, "message", error)).partition("\n")[0][:_LONGEST]
        raise PipelineFailure(
            f"{name} is not a JSON Schema.",
            why=f"{f'at {place}: ' if place else ''}{text}",
            hint="Correct the schema and apply the application again.",
        ) from None


class _Schemas:
    """The files that came along, by every address that they may be referred to by."""

    def __init__(self, files: ShippedFiles, name: str) -> None:
        self.main = _read(name, files.read(name))
        self._by_address: dict[str, Any] = {}
        own = self.main.get("$id") if isinstance(self.main, dict) else None
        for other, content in files.contents.items():
            if not other.endswith(".json"):
                continue
            schema = _read(other, content)
            self._by_address[_HERE + other] = schema
            if isinstance(own, str):
                # Beside the schema on the disk is beside it by its id, too.
                self._by_address[urljoin(own, posixpath.relpath(other, posixpath.dirname(name) or "."))] = schema
            if isinstance(schema, dict) and isinstance(schema.get("$id"), str):
                self._by_address[urldefrag(schema["$id"]).url] = schema

    def retrieve(self, address: str) -> Any:
        try:
            return self._by_address[address]
        except KeyError:
            shown = address.removeprefix(_HERE)
            raise ValueError(f"{shown} is not in the application's folder") from None


def _read(name: str, content: bytes) -> Any:
    try:
        return json.loads(content)
    except (ValueError, RecursionError) as error:
        raise PipelineFailure(
            f"{name} is not JSON.", why=f"{error}.", hint="Correct the schema and apply the application again."
        ) from None


def _referred(folder: Path, name: str) -> list[str]:
    """A schema and the files beside it that it refers to, and so on."""
    found: dict[str, None] = {}
    waiting = [name]
    while waiting:
        file = waiting.pop()
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
        for reference in _references(schema):
            other = posixpath.normpath((PurePosixPath(file).parent / reference).as_posix())
            if (folder / other).is_file():
                waiting.append(other)
    return list(found)


def _references(schema: object) -> Iterator[str]:
    """Every path in a ``$ref``, however deep; addresses that begin with a scheme are no paths."""
    if isinstance(schema, dict):
        reference = schema.get("$ref")
        if isinstance(reference, str):
            path = urldefrag(reference).url
            if path and ":" not in path and not path.startswith("/"):
                yield path
        for inner in schema.values():
            yield from _references(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _references(inner)
