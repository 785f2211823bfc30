"""Gives responses to the callers that wait at this host instance (RR-03, RR-11)."""

from __future__ import annotations

import logging

from postroom.errors import ClaimLost, CorrelationFailure, MessageFailure, ReadInterrupted, is_environment_error
from postroom.hosts.dequeue.service import Disposition, Outcome, ThreadConnections
from postroom.message import Message
from postroom.messagebox.connection import Connection, transaction
from postroom.messagebox.queues import MAX_DESCRIPTION, ClaimedMessage, HostQueues, Suspension, check_claim
from postroom.messagebox.storage.stored_messages import StoredContext, build_message
from postroom.messagebox.storage.stored_responses import StoredResponses
from postroom.messagebox.subscriptions import ServiceSubscriptions
from postroom.pipelines.documents.temporary_bodies import spool
from postroom.receiving.http.callers import Answer, Caller, Callers, NoResponse
from postroom.system_properties import BTS

_log = logging.getLogger(__name__)


class ResponseDelivery:
    """Delivers the messages that are routed to waiting requests. A response without a caller is suspended."""

    def __init__(
        self, *, callers: Callers, queues: HostQueues, stored: StoredResponses, subscriptions: ServiceSubscriptions
    ) -> None:
        self._callers = callers
        self._stored = stored
        self._queues = queues
        self._subscriptions = subscriptions

    def deliver(self, claimed: ClaimedMessage, connections: ThreadConnections) -> Outcome:
        """Complete the response, and give it to its caller after the commit."""
        caller = self._callers.take_answered(claimed.instance_id, _read_token(claimed))
        if caller is None:
            return _suspend_without_caller(claimed)
        try:
            answer = _build_answer(caller, build_message(claimed, connections))
            transaction(
                connections.get_writing(),
                lambda connection: self._complete(connection, claimed, caller, answer),
                has_one_statement=not caller.has_key,
            )
        except ClaimLost:
            return self._return(caller, Disposition.DISCARD)
        except Exception as error:
            if isinstance(error, ReadInterrupted) or is_environment_error(error):
                return self._return(caller, Disposition.RELEASE)
            # The response of a two-way receive port that cannot be processed is suspended (RR-12).
            caller.answer(Answer(missing=NoResponse.REFUSED))
            self._callers.forget(caller)
            if not isinstance(error, MessageFailure):
                _log.error("the response of instance %s failed unexpectedly", claimed.instance_id, exc_info=error)
            return _suspend(error)
        caller.answer(answer)
        return Disposition.FINISHED

    def _return(self, caller: Caller, outcome: Disposition) -> Disposition:
        """Let the caller wait again: its response is still in the MessageBox."""
        self._callers.put_back(caller)
        return outcome

    def _complete(self, connection: Connection, claimed: ClaimedMessage, caller: Caller, answer: Answer) -> None:
        completion = self._queues.build_completion(claimed)
        check_claim(self._subscriptions.complete_with_message(connection, claimed.instance_id, completion))
        if caller.has_key:
            content_type = answer.content_type if answer.missing is None else None
            chunks = () if answer.body is None else answer.body.chunks()
            self._stored.store(connection, caller.unit, content_type, chunks)


def _read_token(claimed: ClaimedMessage) -> str | None:
    context = None if claimed.context is None else StoredContext(claimed.context, {})
    return None if context is None else context.get(BTS.EpmRRCorrelationToken)


def _suspend_without_caller(claimed: ClaimedMessage) -> Suspension:
    if _read_token(claimed) is not None:
        return _suspend(CorrelationFailure())
    return Suspension(
        code="NO_RECEIVER",
        description="This host instance has no service for the instance that the message belongs to.\n"
        "Resume it when a host instance with the service runs.",
    )


def _build_answer(caller: Caller, message: Message) -> Answer:
    """Return what the caller gets: the response after the maps and the pipeline of the port, or that there is none."""
    if message.context.get(BTS.AckType) == "NACK":
        return Answer(missing=NoResponse.REFUSED)
    maps = caller.location.response_maps
    outgoing = caller.location.send_pipeline.run(maps.running.map_message(message) if maps else message)
    body = None if outgoing is None else outgoing.body
    if body is None:
        return Answer()
    # Read before the commit, after which the stored body may be deleted.
    return Answer(body=spool(body.body.chunks()), content_type=_get_content_type(body.content_type, body.charset))


def _get_content_type(content_type: str, charset: str | None) -> str:
    if charset and "charset" not in content_type.lower():
        return f"{content_type}; charset={charset}"
    return content_type


def _suspend(error: Exception) -> Suspension:
    code = error.code if isinstance(error, MessageFailure) else "UNEXPECTED"
    return Suspension(code=code, description=str(error)[:MAX_DESCRIPTION], resumable=False)
