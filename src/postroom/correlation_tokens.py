"""Correlation tokens: a request and its response carry the same one (RR-02, RR-03)."""

from __future__ import annotations

from collections.abc import Mapping

from postroom.filters.expression import Filter
from postroom.message import Context
from postroom.properties import Property
from postroom.system_properties import BTS
from postroom.values import Value


def add_token(request: Context, token: str) -> Context:
    """Return the context of a request with its token. A response that is sent as a request loses what routed it to its
    caller."""
    return (
        request.promote(BTS.EpmRRCorrelationToken, token)
        .promote(BTS.CorrelationToken, token)
        .promote(BTS.RouteDirectToTP, None)
        .write(BTS.IsRequestResponse, True)
    )


def copy_token(request: Context, response: Context) -> Context:
    """Return the context of a response with the token of its request, if it has one. So it is routed to the caller."""
    token = request.get(BTS.EpmRRCorrelationToken)
    if token is None:
        return response
    return (
        response.promote(BTS.EpmRRCorrelationToken, token)
        .promote(BTS.CorrelationToken, request.get(BTS.CorrelationToken, token))
        .promote(BTS.RouteDirectToTP, True)
    )


def remove_token(message: Context) -> Context:
    """Return the context of a request or response that is sent on, without its token: it has no caller then (RR-15)."""
    for prop in (BTS.EpmRRCorrelationToken, BTS.CorrelationToken, BTS.RouteDirectToTP, BTS.IsRequestResponse):
        message = message.promote(prop, None)
    return message


def demote_token(message: Context) -> Context:
    """Return the context of a request that is sent to another orchestration, which can answer the caller. The token
    routes it nowhere."""
    for prop in (BTS.EpmRRCorrelationToken, BTS.CorrelationToken):
        message = message.write(prop, message.get(prop))
    return message.promote(BTS.RouteDirectToTP, None)


def find_reply_address(message: Context) -> Mapping[Property, Value] | None:
    """Return the promoted properties that route an answer to whoever waits for one to a message: the reply port that
    its sender has passed, or the caller of a request. Return None if nobody waits, or if the message is an answer.

    ``reply_address`` in the MessageBox finds the same."""
    is_reply = message.is_promoted(BTS.PartnerService) and not message.is_promoted(BTS.PartnerPort)
    if is_reply or message.is_promoted(BTS.RouteDirectToTP):
        return None
    if (port := message.get(BTS.ReplyTo)) is not None:
        return {BTS.PartnerService: port}
    token = message.get(BTS.EpmRRCorrelationToken)
    return None if token is None else {BTS.EpmRRCorrelationToken: token, BTS.RouteDirectToTP: True}


def build_response_filter(token: str) -> Filter:
    """Return the filter that the response to a request with this token matches, but the request does not."""
    return (BTS.EpmRRCorrelationToken == token) & (BTS.RouteDirectToTP == True)  # noqa: E712 - a filter
