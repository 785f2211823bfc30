"""An assembler for JSON: demotes properties into the document, and writes an envelope around it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from postroom.message import Bytes, Context, Message
from postroom.pipelines.components.contract import Assembler, get_body, replace_body
from postroom.pipelines.demotions import demotion_problems
from postroom.pipelines.json import path as json_path
from postroom.pipelines.promotions import Promote, Promotions
from postroom.properties import Property


class JsonEnvelope(BaseModel):
    """An envelope with the document as the only element of the array at the path ``body``. It is the inverse of
    ``pipelines.Json(split=...)``.

    ``content`` are the other members of the envelope. ``demote`` copies properties into it. ``body="$"`` writes an
    array without anything around it.

    components.JsonEnvelope("orders", content={"version": 2}, demote={Sender: "header.sender"})
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    body: str
    content: Mapping[str, Any] = Field(default_factory=dict)
    demote: Promote = Promotions()

    def __init__(self, body: str, **settings: Any) -> None:
        super().__init__(**{"body": body, **settings})

    def problems(self) -> list[str]:
        found = _demote_problems(self.demote) + json_path.split_problems(self.body, what="body")
        if self.body == json_path.ROOT and (self.content or self.demote):
            found.append("The envelope is an array (body='$') and cannot have other content.")
        found += [
            f"{prop.dotted_name} is demoted into {path!r}, which overlaps with the body {self.body!r}."
            for prop, path in self.demote.items()
            if self.body != json_path.ROOT and json_path.overlaps(path, self.body)
        ]
        return found

    def wrap(self, document: bytes, context: Context) -> bytes:
        """Return the envelope with a document in it."""
        from postroom.pipelines.json.demotion import demote_json, set_value

        envelope = demote_json(json.dumps(self.content).encode(), self.demote, context)
        return set_value(envelope, json_path.parse_split(self.body), b"[%b]" % document)


class JsonAssembler(Assembler):
    """Writes a JSON document. ``demote`` maps properties to dotted paths, as ``promote`` of ``pipelines.Json`` does.

    The value of a property that the message has replaces the value at its path, and missing objects are created.
    Everything else keeps its bytes. Dates are strings in UTC, such as ``2026-01-31T12:00:00.0000000Z``.
    """

    demote: Promote = Promotions()
    envelope: JsonEnvelope | None = None

    @property
    def demotes(self) -> tuple[Property, ...]:
        return (*self.demote, *(() if self.envelope is None else self.envelope.demote))

    def problems(self) -> list[str]:
        found = _demote_problems(self.demote)
        return found + [f"envelope: {text}" for text in (self.envelope.problems() if self.envelope else ())]

    def assemble(self, message: Message) -> Message:
        from postroom.pipelines.documents.disassembled_batch import read_whole
        from postroom.pipelines.json.demotion import demote_json, read_json

        document = read_json(read_whole(get_body(message).body, "document"))
        document = demote_json(document, self.demote, message.context)
        if self.envelope is not None:
            document = self.envelope.wrap(document, message.context)
        return replace_body(message, Bytes(document), content_type="application/json")


def _demote_problems(demote: Mapping[Property, str]) -> list[str]:
    assert isinstance(demote, Promotions)
    return demotion_problems(demote) + json_path.problems(demote)
