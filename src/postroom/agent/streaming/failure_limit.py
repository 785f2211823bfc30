"""The limit of failures of a recoverable interchange: documents that are bad, and documents without a subscriber.

Without a limit, a file of another format, or a file that has no subscriber, would become one suspended instance per
line. A chunk that exceeds the limit is not published. The chunk and the rest of the interchange are suspended as one
instance (ADR 0021).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from postroom.errors import MessageFailure, PipelineFailure, RoutingFailure
from postroom.pipelines.documents.disassembled_batch import BadDocument


@dataclass(frozen=True, kw_only=True)
class ChunkFailures:
    """The failures of one chunk.

    ``earlier`` is the number of documents without a subscriber in earlier chunks that this run has published.
    ``documents`` is the number of the last document of the chunk, and ``last`` that of the last published document."""

    bad: Sequence[BadDocument]
    unroutable: Sequence[RoutingFailure]
    earlier: int
    documents: int
    last: int


class FailureCheck(Protocol):
    """Decides whether a chunk has too many failures to be published."""

    def check_failures(self, failures: ChunkFailures) -> MessageFailure | None:
        """Return a failure if bad documents and documents without a subscriber together exceed the limit."""
        ...


@dataclass(frozen=True, kw_only=True)
class FailureLimit(FailureCheck):
    """The limit of an interchange. ``before`` is the number of failures after document ``since``, in the documents that
    are published already."""

    maximum: int
    since: int = 0
    before: int = 0

    def check_bad_documents(self, failures: Sequence[BadDocument], *, last: int) -> PipelineFailure | None:
        """Return a failure if the bad documents of a batch exceed the limit. ``last`` is the last document that was
        published."""
        if not failures or self.before + len(failures) <= self.maximum:
            return None
        # If the limit was lowered, there can be more than the limit before.
        count = max(self.maximum, self.before) + 1
        number = failures[count - self.before - 1].number
        return PipelineFailure(
            f"{count:,} of the {self._describe_documents(number)} are bad, and bad_documents allows {self.maximum:,}.",
            why=f"{_describe_published(last)}. The first bad document: {failures[0].failure.what}",
            hint="If it is of another format, terminate it. If not, fix it or raise bad_documents, and resume it.",
        )

    def check_failures(self, failures: ChunkFailures) -> MessageFailure | None:
        bad, unroutable, last = failures.bad, failures.unroutable, failures.last
        count = self.before + failures.earlier + len(bad) + len(unroutable)
        if count <= self.maximum or not (bad or unroutable):
            return None
        what = (
            f"{count:,} of the {self._describe_documents(failures.documents)} have no subscriber or are bad, and"
            f" bad_documents allows {self.maximum:,}."
        )
        if not unroutable:
            why = f"{_describe_published(last)}. The first bad document of the rest: {bad[0].failure.what}"
            return PipelineFailure(what, why=why, hint="Fix it or raise bad_documents, and resume it.")
        return RoutingFailure(
            what,
            why=f"{_describe_published(last)}. The first one without a subscriber: {unroutable[0].what}",
            hint="Enlist or correct a port, or raise bad_documents, and resume it. If it is not needed, terminate it.",
        )

    def _describe_documents(self, last: int) -> str:
        return f"documents {self.since + 1:,} to {last:,}" if self.since else f"first {last:,} documents"


def _describe_published(last: int) -> str:
    return f"What follows document {last:,} was not published" if last else "Nothing of it was published"
