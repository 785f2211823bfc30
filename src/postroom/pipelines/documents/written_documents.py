"""Documents that a disassembler had to write, and that are too large for their rows (LRG-02).

What is cut out of an interchange goes by its place there. What stands nowhere as it is, such as a document of an XML
envelope that declares the namespaces, goes by its place beside the interchange.
"""

from __future__ import annotations

from postroom.message import FRAGMENT_SIZE, Body, Bytes
from postroom.pipelines.documents.disassembled_batch import MAX_DOCUMENT_SIZE, too_large
from postroom.pipelines.documents.spool import WRITTEN, Spool


class WrittenDocuments:
    """Those of one interchange."""

    def __init__(self) -> None:
        self._kept = Spool()

    def place(self, document: bytes) -> int:
        """Where a document stands, for ``Rows.add``; of a small one that does not matter. PipelineFailure if it is too
        large for a document."""
        if len(document) > MAX_DOCUMENT_SIZE:
            raise too_large(f"The document has {len(document):,} bytes", "document")
        return WRITTEN + self._kept.append(Bytes(document)) if len(document) > FRAGMENT_SIZE else 0

    @property
    def body(self) -> Body | None:
        """All of them, to stand beside the interchange; it grows, and places stay."""
        return self._kept.body if self._kept.size else None
