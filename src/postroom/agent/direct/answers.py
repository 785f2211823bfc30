"""Answers to requests. An answer whose caller is gone is suspended, even if it has other subscribers (RR-05, RR-07)."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence

from postroom.agent.direct.direct_batch import DirectBatch
from postroom.agent.routing.batch_matches import MatchResult
from postroom.agent.routing.matching import Matcher
from postroom.errors import CorrelationFailure, MessageFailure
from postroom.message import Message
from postroom.messagebox.configuration.hosts import Host


class AnswerBatch(DirectBatch):
    """A batch of the direct lane. ``answers`` has the ids of its messages that answer requests."""

    def __init__(
        self,
        host: Host,
        messages: Sequence[Message],
        matcher: Matcher,
        *,
        unit: uuid.UUID,
        answers: Collection[uuid.UUID],
        failures: Mapping[int, MessageFailure] | None = None,
    ) -> None:
        super().__init__(host, messages, matcher, unit=unit, failures=failures)
        self._answers = answers

    def find_more_failures(self, matches: MatchResult) -> Mapping[int, MessageFailure]:
        if not self._answers:
            return {}
        pairs = zip(matches.rows.tolist(), matches.subscription_ids.tolist(), strict=True)
        with_caller = {row for row, subscription_id in pairs if matches.subscribers[subscription_id].is_caller}
        return {
            row: correlation_failure()
            for row, message in enumerate(self._messages)
            if message.message_id in self._answers and row not in with_caller
        }


def correlation_failure() -> CorrelationFailure:
    """Return the failure of a response whose caller does not wait any more."""
    return CorrelationFailure(
        "The response could not be correlated to an existing request.",
        why="The caller has another response, its time was over, or it has disconnected.",
        hint="Save the message if it is needed, and terminate the instance.",
    )
