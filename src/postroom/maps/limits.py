"""How large a document may be that a map reads or makes."""

from __future__ import annotations

from postroom.errors import MapFailure
from postroom.pipelines.disassembled import MAX_DOCUMENT_SIZE

__all__ = ["MAX_DOCUMENT_SIZE", "too_much"]


def too_much(what: str) -> MapFailure:
    return MapFailure(
        f"{what}.",
        why=f"A document that is mapped may have at most {MAX_DOCUMENT_SIZE:,} bytes, before and after.",
        hint="Split it before it is mapped, or take the map from the port.",
    )
